"""The results as pictures, PNG and SVG. Needs matplotlib, which the extra `bench` brings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.queue.figures import Spread
from benchmarks.suite.headline import number
from benchmarks.suite.runner import Metric, Scenario
from benchmarks.suite.store import CLIENT_CPU, P50, P99, RATE, SERVER_CPU, SIZE, SIZE_OF, Store
from benchmarks.suite.summary import DISTRIBUTION, OURS, Part, Result, quantile, summarise

__all__ = ["UnavailableError", "draw"]

ACCENT, OTHER, INK, FAINT = "#0b5fa5", "#8a97a3", "#1d2429", "#e6eaed"


@dataclass(frozen=True)
class Look:
    """How a contestant looks in every picture; marks and dashes tell lines apart where colours do not."""

    colour: str
    mark: str
    dashes: str = "-"
    width: float = 1.7


LOOKS: Mapping[str, Look] = {
    OURS: Look(ACCENT, "o", width=2.8),
    "pysqlbox settle": Look(ACCENT, "D", "--", 2.4),
    "pysqlbox payloads": Look(ACCENT, "D", "--", 2.4),
    "pysqlbox (batches of 500)": Look(ACCENT, "D", "--", 2.4),
    "pysqlbox (coroutines)": Look(ACCENT, "^", "-.", 2.4),
    "pysqlbox (transactional)": Look(ACCENT, "v", "-.", 2.4),
    "pysqlbox (before)": Look("#7fb2dd", "o", "--", 2.0),
    "pysqlbox T-SQL": Look(ACCENT, "s", ":", 2.4),
    "pgmq": Look("#117733", "^"),
    "pgmq archive": Look("#44aa99", "v"),
    "pgq": Look("#cc6677", "s"),
    "pgque": Look("#ee8866", "p"),
    "awa": Look("#332288", "*"),
    "graphile-worker": Look("#882255", "s"),
    "pg-boss": Look("#999933", "v"),
    "pgqueuer": Look("#aa4499", "^"),
    "procrastinate": Look("#e69f00", "P"),
    "river": Look("#0f7b8a", "h"),
    "absurd": Look("#3b3b3b", "X"),
    "dbos": Look("#56b4e9", "d"),
    "delete skip locked": Look("#8a97a3", "x", "--", 1.4),
    "status column": Look("#a9b4be", "+", ":", 1.8),
    "copy": Look("#c3cbd2", "|", "-.", 1.4),
}
"""Colours that also those tell apart who see some of them alike; ours are blue, floors grey."""
UNKNOWN = Look("#ddcc77", ".")
TABLES = ("#0b5fa5", "#e69f00", "#117733", "#cc6677", "#56b4e9", "#882255", "#8a97a3")
"""Of tables over time, the largest first; the last is of all others together."""
MARKS = 8
"""So many on a curve."""
WIDE = 20.0
"""Where the largest value is that many times the smallest, the axis is logarithmic."""
CPU_SHOWN = ("enqueue_single", "enqueue_bulk", "drain_routine", "worker_drain")
"""Where the CPU time per message is drawn too; the tables have it everywhere."""
ROW_INCHES, PANEL_INCHES = 0.36, 4.1
STYLE: Mapping[str, Any] = {
    "font.size": 11,
    "font.family": "DejaVu Sans",
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": OTHER,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "figure.dpi": 110,
    "savefig.dpi": 150,
}

Axes = Any
"""matplotlib's; it may not be installed where types are checked."""


class UnavailableError(RuntimeError):
    """There is no matplotlib; the message says how to get it."""


def draw(folder: Path, store: Store, scenarios: Sequence[Scenario[Any]]) -> list[Path]:
    """All pictures; answers their paths."""
    pyplot = _pyplot()
    parts = summarise(store, scenarios)
    written: list[Path] = []
    with pyplot.rc_context(dict(STYLE)):
        for scenario in scenarios:
            there = [part for part in parts if part.scenario is scenario and part.measured()]
            for suffix, figure in _pictures(pyplot, scenario, there) if there else []:
                written += _save(pyplot, figure, folder / f"{scenario.name}{suffix}")
        figure = _headline(pyplot, parts)
        if figure is not None:
            written += _save(pyplot, figure, folder / "headline")
    return written


def _pyplot() -> Any:
    try:
        import matplotlib

        matplotlib.use("agg")
        from matplotlib import pyplot
    except ImportError as error:
        text = "no plots without matplotlib: pip install 'pysqlbox[bench]'"
        raise UnavailableError(text) from error
    return pyplot


def _save(pyplot: Any, figure: Any, path: Path) -> list[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.with_name(f"{path.name}.png")
    figure.savefig(file, bbox_inches="tight")
    pyplot.close(figure)
    return [file]


def _pictures(pyplot: Any, scenario: Scenario[Any], parts: Sequence[Part]) -> list[tuple[str, Any]]:
    """What a scenario is best shown by, each with a suffix for its file's name."""
    figures: list[tuple[str, Any]] = []
    if any(DISTRIBUTION in result.curves for part in parts for result in part.results):
        figures.append(("", _panels(pyplot, parts, _distributions)))
    elif any(RATE in result.curves for part in parts for result in part.results):
        figures.append(("", _panels(pyplot, parts, _curves)))
    else:
        figures.append(("", _bars(pyplot, parts, scenario.metrics[0])))
    if any(SIZE in result.curves for part in parts for result in part.results):
        title = "All tables with their indexes"
        sizes = _panels(pyplot, parts, lambda axes, part: _curves(axes, part, SIZE, "MB"), title)
        figures += [("_size", sizes), ("_tables", _tables(pyplot, parts))]
    costs = [
        part for part in parts if any({CLIENT_CPU, SERVER_CPU} <= one.values.keys() for one in part.results)
    ]
    if scenario.name in CPU_SHOWN and costs:
        title = f"CPU time per message: {scenario.title[0].lower()}{scenario.title[1:]}"
        figures.append(("_cpu", _panels(pyplot, costs[:1], _cpu, title)))
    return figures


# Bars: one panel a variant, contestants in the order of the first.


def _bars(pyplot: Any, parts: Sequence[Part], metric: Metric) -> Any:
    """A value of every contestant, a panel a variant."""
    names = list(dict.fromkeys(result.contestant.name for part in parts for result in part.measured()))
    columns = min(len(parts), 3)
    rows = math.ceil(len(parts) / columns)
    each = [[result.values[metric.name] for result in part.measured()] for part in parts]
    every = [spread for spreads in each for spread in spreads]
    # Panels that differ much, but have bars that can be compared within, have axes of their own.
    alike = any(map(_is_wide, each)) or not _is_wide(every)
    figure, grid = pyplot.subplots(
        rows,
        columns,
        figsize=(1.8 + PANEL_INCHES * columns, (1.3 + ROW_INCHES * len(names)) * rows),
        squeeze=False,
        sharey=True,
        sharex=alike,
        layout="constrained",
    )
    figure.get_layout_engine().set(w_pad=0.12)
    for axes, part, spreads in zip(grid.flat, parts, each, strict=False):
        _bar_panel(axes, part, metric, names, every if alike else spreads)
        axes.set_title(part.variant if len(part.scenario.variants) > 1 else "")
    for place, axes in enumerate(grid.flat):
        if place + columns >= len(parts):
            axes.tick_params(axis="x", labelbottom=True)
            axes.set_xlabel(_axis(metric, every if alike else each[min(place, len(each) - 1)]))
    for axes in list(grid.flat)[len(parts) :]:
        axes.set_visible(False)
    _title(figure, parts[0].scenario.title)
    return figure


def _bar_panel(
    axes: Axes, part: Part, metric: Metric, names: Sequence[str], spreads: Sequence[Spread]
) -> None:
    """Bars from nought; on a logarithmic axis, which has none, marks. A line shows the spread."""
    places = {name: len(names) - 1 - row for row, name in enumerate(names)}
    logarithmic = _is_wide(spreads)
    lowest, highest = min(one.low for one in spreads), max(one.high for one in spreads)
    for result in part.measured():
        spread, place = result.values[metric.name], places[result.contestant.name]
        colour, there = _look(result).colour, spread.count > 1
        if logarithmic:
            axes.plot([spread.low, spread.high], [place, place], color=colour, linewidth=3, alpha=0.5)
            axes.scatter([spread.median], [place], s=70, color=colour, zorder=3)
        else:
            axes.barh(place, spread.median, height=0.68, color=colour)
            for width, line in ((3.6, "white"), (1.4, INK)) if there else ():
                axes.plot([spread.low, spread.high], [place, place], color=line, linewidth=width)
        axes.annotate(
            number(spread.median),
            (max(spread.high, spread.median), place),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
        )
    if logarithmic:
        axes.set_xscale("log")
        first = max(lowest, highest / 1e6) / 1.5
        axes.set_xlim(first, highest * (highest / first) ** 0.35)
    else:
        axes.set_xlim(0, highest * 1.35)
    _tell_absent(axes, part, places)
    _scale(axes.xaxis, logarithmic=logarithmic)
    _name_rows(axes, names)
    axes.grid(visible=False, axis="y")


def _tell_absent(axes: Axes, part: Part, places: Mapping[str, int]) -> None:
    """An empty row has its reason."""
    there = {result.contestant.name for result in part.measured()}
    failed = {result.contestant.name for result in part.results} - there
    for contestant in part.scenario.contestants:
        name = contestant.name
        if name not in places or name in there:
            continue
        able = part.scenario.takes_part(contestant, part.variant)
        text = "failed" if name in failed else "not measured" if able else "cannot take part"
        axes.annotate(
            text,
            (0.01, places[name]),
            xycoords=("axes fraction", "data"),
            va="center",
            color=OTHER,
            fontsize=10,
        )


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks([len(names) - 1 - row for row in range(len(names))], names)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.tick_params(axis="y", length=0)
    for label in axes.get_yticklabels():
        if label.get_text().startswith(OURS):
            label.set_fontweight("bold")


# Panels with lines or marks.


def _panels(pyplot: Any, parts: Sequence[Part], panel: Callable[[Axes, Part], None], title: str = "") -> Any:
    """A panel a variant, two side by side."""
    columns = min(len(parts), 2)
    rows = math.ceil(len(parts) / columns)
    figure, grid = pyplot.subplots(
        rows,
        columns,
        figsize=(1.0 + 6.6 * columns, 0.4 + 3.8 * rows),
        squeeze=False,
        layout="constrained",
    )
    for axes, part in zip(grid.flat, parts, strict=False):
        panel(axes, part)
        if len(part.scenario.variants) > 1:
            axes.set_title(part.variant)
    for axes in list(grid.flat)[len(parts) :]:
        axes.set_visible(False)
    _title(figure, title or parts[0].scenario.title)
    return figure


def _title(figure: Any, text: str) -> None:
    figure.suptitle(text, x=0.01, ha="left", fontweight="bold", fontsize=14)


def _distributions(axes: Axes, part: Part) -> None:
    """What share of the messages arrived within how many milliseconds."""
    ends = []
    for result in [one for one in part.results if DISTRIBUTION in one.curves]:
        curve = result.curves[DISTRIBUTION]
        across, up = [x for _, x in curve], [100 * share for share, _ in curve]
        axes.step(across, up, where="post", **_line(result, len(curve)))
        ends.append((quantile(curve, 0.5), _legend_text(result), result))
    axes.set_xscale("log")
    _scale(axes.xaxis, logarithmic=True)
    axes.set_ylim(0, 101)
    axes.set_ylabel("% of the messages")
    axes.set_xlabel("from the enqueue call to the handler's start, ms (log scale)")
    _legend(axes, [(text, result) for _, text, result in sorted(ends, key=lambda one: one[0])])


def _legend_text(result: Result) -> str:
    median = result.values.get(P50)
    worst = result.values.get(P99)
    told = [f"p50 {number(median.median)}"] if median else []
    told += [f"p99 {number(worst.median)}"] if worst else []
    return f"{result.contestant.name}: {', '.join(told)} ms"


def _curves(axes: Axes, part: Part, name: str = RATE, unit: str = "messages/s") -> None:
    """A value as time goes by."""
    drawn, lowest, highest = [], math.inf, 0.0
    for result in [one for one in part.results if name in one.curves]:
        curve = result.curves[name]
        axes.plot([x for x, _ in curve], [y for _, y in curve], **_line(result, len(curve)))
        tail = [y for _, y in curve[-max(len(curve) // 10, 1) :]]
        lowest = min([lowest, *(y for _, y in curve if y > 0)])
        highest = max([highest, *(y for _, y in curve)])
        drawn.append((-sum(tail) / len(tail), result.contestant.name, result))
    logarithmic = name == RATE and highest > WIDE * lowest
    if logarithmic:
        axes.set_yscale("log")
        axes.set_ylim(lowest / 1.3, highest * 1.3)
    else:
        axes.set_ylim(bottom=0)
    _scale(axes.yaxis, logarithmic=logarithmic)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds")
    axes.set_ylabel(f"{unit} (log scale)" if logarithmic else unit)
    _legend(axes, [(text, result) for _, text, result in sorted(drawn, key=lambda one: one[0])])


def _tables(pyplot: Any, parts: Sequence[Part]) -> Any:
    """A panel a contestant: its largest tables over time."""
    results = [one for part in parts for one in part.results if SIZE in one.curves]
    columns = min(len(results), 2)
    rows = math.ceil(len(results) / columns)
    figure, grid = pyplot.subplots(
        rows,
        columns,
        figsize=(1.0 + 7.4 * columns, 0.4 + 3.2 * rows),
        squeeze=False,
        sharex=True,
        layout="constrained",
    )
    end = max(x for result in results for x, _ in result.curves[SIZE])
    for axes, result in zip(grid.flat, results, strict=False):
        largest = max(y for _, y in result.curves[SIZE])
        names = [
            name
            for name, curve in result.curves.items()
            if name.startswith(SIZE_OF) and max(y for _, y in curve) > largest / 100
        ]
        for place, name in enumerate(names):
            curve = result.curves[name]
            axes.plot(
                [x for x, _ in curve],
                [y for _, y in curve],
                color=TABLES[min(place, len(TABLES) - 1)],
                linestyle=("-", "--", ":")[place % 3],
                label=name.removeprefix(SIZE_OF),
            )
        axes.set_title(result.contestant.name)
        axes.set_ylim(bottom=0)
        axes.set_xlim(0, end)
        axes.set_ylabel("MB")
        axes.tick_params(axis="x", labelbottom=True)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
        _scale(axes.yaxis, logarithmic=False)
    for axes in list(grid.flat)[max(len(results) - columns, 0) : len(results)]:
        axes.set_xlabel("seconds")
    for axes in list(grid.flat)[len(results) :]:
        axes.set_visible(False)
    _title(figure, "Each one's largest tables, with their indexes")
    return figure


def _cpu(axes: Axes, part: Part) -> None:
    """CPU time of client and server per message, two marks a row."""
    results = [one for one in part.measured() if {CLIENT_CPU, SERVER_CPU} <= one.values.keys()]
    results.sort(key=lambda one: one.values[CLIENT_CPU].median + one.values[SERVER_CPU].median)
    names = [result.contestant.name for result in results]
    values = []
    for row, result in enumerate(results):
        client, server = (max(result.values[name].median, 0.01) for name in (CLIENT_CPU, SERVER_CPU))
        values += [client, server]
        place, colour = len(names) - 1 - row, _look(result).colour
        axes.plot([client, server], [place, place], color=colour, linewidth=2.5, zorder=1)
        axes.scatter([client], [place], s=60, facecolor="white", edgecolor=colour, linewidth=2, zorder=2)
        axes.scatter([server], [place], s=60, color=colour, zorder=2)
    logarithmic = max(values) > WIDE * min(values)
    if logarithmic:
        axes.set_xscale("log")
    else:
        axes.set_xlim(left=0)
    _scale(axes.xaxis, logarithmic=logarithmic)
    axes.set_xlabel(f"CPU time per message, µs{' (log scale)' if logarithmic else ''}: ○ client, ● server")
    _name_rows(axes, names)


def _legend(axes: Axes, entries: Sequence[tuple[str, Result]]) -> None:
    """In the order of the curves, to their right."""
    handles = [axes.plot([], [], **_line(result, 1))[0] for _, result in entries]
    axes.legend(
        handles,
        [text for text, _ in entries],
        loc="center left",
        bbox_to_anchor=(1.01, 0.5),
        frameon=False,
        fontsize=10,
    )


# The picture for the front page.


def _headline(pyplot: Any, parts: Sequence[Part]) -> Any:
    """Workers draining, latency, and a held snapshot: as far as they were measured."""
    found = {(part.scenario.name, part.variant): part for part in parts if part.measured()}
    drain, latency = found.get(("worker_drain", "1 process")), found.get(("latency_idle", "1 process"))
    held = next((part for (name, _), part in found.items() if name == "held_snapshot"), None)
    panels: list[tuple[str, Callable[[Axes], None]]] = []
    if drain is not None:
        panels.append(("Drained by one worker process", lambda axes: _single_bars(axes, drain)))
    if latency is not None:
        panels.append(("Latency when idle", lambda axes: _latencies(axes, latency)))
    if held is not None:
        panels.append(("Throughput while a snapshot is held", lambda axes: _curves(axes, held)))
    if not panels:
        return None
    figure, grid = pyplot.subplots(
        1, len(panels), figsize=(5.8 * len(panels), 3.8), squeeze=False, layout="constrained"
    )
    figure.get_layout_engine().set(w_pad=0.15)
    for axes, (title, paint) in zip(grid.flat, panels, strict=True):
        paint(axes)
        axes.set_title(title)
    return figure


def _single_bars(axes: Axes, part: Part) -> None:
    results = part.measured()
    spreads = [result.values[RATE] for result in results]
    _bar_panel(axes, part, part.headline, [result.contestant.name for result in results], spreads)
    axes.set_xlabel(_axis(part.headline, spreads))


def _latencies(axes: Axes, part: Part) -> None:
    """From the median to the 99th percentile."""
    results = [result for result in part.measured() if P50 in result.values]
    names = [result.contestant.name for result in results]
    for row, result in enumerate(results):
        place, colour, median = len(names) - 1 - row, _look(result).colour, result.values[P50].median
        worst = result.values[P99].median if P99 in result.values else median
        axes.plot([median, worst], [place, place], color=colour, linewidth=3, solid_capstyle="round")
        axes.scatter([median], [place], s=70, color=colour, zorder=2)
        axes.annotate(
            f"{number(median)} to {number(worst)}" if P99 in result.values else number(median),
            (worst, place),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
        )
    axes.set_xscale("log")
    left, right = axes.get_xlim()
    axes.set_xlim(right=right * (right / left) ** 0.5)
    _scale(axes.xaxis, logarithmic=True)
    axes.set_xlabel("median (●) to 99th percentile, ms (log scale)")
    _name_rows(axes, names)
    axes.grid(visible=False, axis="y")


# Small things.


def _look(result: Result) -> Look:
    return LOOKS.get(result.contestant.name, UNKNOWN)


def _line(result: Result, points: int) -> dict[str, Any]:
    """A curve's looks."""
    look = _look(result)
    return {
        "color": look.colour,
        "linestyle": look.dashes,
        "linewidth": look.width,
        "marker": look.mark,
        "markersize": 5,
        "markevery": max(points // MARKS, 1),
        "zorder": 3 if look.colour == ACCENT else 2,
    }


def _is_wide(spreads: Sequence[Spread]) -> bool:
    values = [spread.median for spread in spreads]
    return min(values) > 0 and max(values) / min(values) > WIDE


def _axis(metric: Metric, spreads: Sequence[Spread]) -> str:
    scale = " (log scale)" if _is_wide(spreads) else ""
    return f"{metric.title}{', ' if metric.unit else ''}{metric.unit}{scale}"


def _scale(axis: Axes, *, logarithmic: bool) -> None:
    """Few ticks, and 1,000 and 10k rather than 10³ and 10⁴."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    low, high = axis.get_view_interval()
    if logarithmic:
        few = high / low > 300
        axis.set_major_locator(LogLocator(subs=(1,) if few else (1, 2, 5)))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(4))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))


def _short(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    if value >= 10_000:
        return f"{value / 1000:g}k"
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"
