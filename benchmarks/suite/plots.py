"""The results as pictures, PNG and SVG. Needs matplotlib, which the extra `bench` brings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.suite.report import number
from benchmarks.suite.runner import Metric, Scenario
from benchmarks.suite.store import CLIENT_CPU, P50, P99, RATE, SERVER_CPU, Store
from benchmarks.suite.summary import DISTRIBUTION, OURS, Part, Result, quantile, summarise

__all__ = ["UnavailableError", "draw"]

ACCENT, OTHER, FLOOR, INK, FAINT = "#0b5fa5", "#8a97a3", "#d3d9de", "#1d2429", "#e6eaed"
LINES = ("#d1602a", "#2a8f6f", "#a2487f", "#b08a00", "#3d4a52", "#7fae3a", "#c78fc0", "#8a97a3")
"""Colours of the others' curves, in the order in which they come."""
WIDE = 20.0
"""Where the largest value is that many times the smallest, the axis is logarithmic."""
CPU_SHOWN = ("enqueue_single", "enqueue_bulk", "drain_routine", "worker_drain")
"""Where the CPU time per message is drawn too; the tables have it everywhere."""
SIZE = "megabytes"
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
    "svg.hashsalt": OURS,
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
    written = [path.with_name(f"{path.name}.{suffix}") for suffix in ("png", "svg")]
    for file in written:
        figure.savefig(file, bbox_inches="tight", metadata={"Date": None} if file.suffix == ".svg" else None)
    pyplot.close(figure)
    return written


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
        sizes = _panels(
            pyplot, parts, lambda axes, part: _curves(axes, part, SIZE, "MB"), "Size of the database"
        )
        figures.append(("_size", sizes))
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
    figure, grid = pyplot.subplots(
        rows,
        columns,
        figsize=(1.8 + PANEL_INCHES * columns, (1.3 + ROW_INCHES * len(names)) * rows),
        squeeze=False,
        sharey=True,
        sharex=True,
        layout="constrained",
    )
    figure.get_layout_engine().set(w_pad=0.12)
    values = [result.values[metric.name].median for part in parts for result in part.measured()]
    for axes, part in zip(grid.flat, parts, strict=False):
        _bar_panel(axes, part, metric, names, values)
        axes.set_title(part.variant if len(part.scenario.variants) > 1 else "")
    for axes in grid[-1, :]:
        axes.set_xlabel(_axis(metric, values))
    for axes in list(grid.flat)[len(parts) :]:
        axes.set_visible(False)
    _title(figure, parts[0].scenario.title)
    return figure


def _bar_panel(axes: Axes, part: Part, metric: Metric, names: Sequence[str], values: Sequence[float]) -> None:
    places = {name: len(names) - 1 - row for row, name in enumerate(names)}
    logarithmic = _is_wide(values)
    lowest = 10 ** math.floor(math.log10(min(values) / 1.5)) if logarithmic else 0
    for result in part.measured():
        spread, place = result.values[metric.name], places[result.contestant.name]
        axes.barh(place, spread.median - lowest, left=lowest, height=0.68, color=_colour(result))
        if spread.count > 1:
            axes.plot([spread.low, spread.high], [place, place], color=INK, linewidth=1.2)
        axes.annotate(
            number(spread.median),
            (max(spread.high, spread.median), place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
        )
    if logarithmic:
        axes.set_xscale("log")
        axes.set_xlim(lowest, max(values) * (max(values) / lowest) ** 0.3)
    else:
        axes.set_xlim(0, max(values) * 1.3)
    _scale(axes.xaxis, logarithmic=logarithmic)
    _name_rows(axes, names)
    axes.grid(visible=False, axis="y")


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
    for result, colour in _coloured([one for one in part.results if DISTRIBUTION in one.curves]):
        curve = result.curves[DISTRIBUTION]
        across, up = [x for _, x in curve], [100 * share for share, _ in curve]
        axes.step(across, up, where="post", color=colour, **_weight(result))
        ends.append((quantile(curve, 0.5), _legend_text(result), colour, result))
    axes.set_xscale("log")
    _scale(axes.xaxis, logarithmic=True)
    axes.set_ylim(0, 101)
    axes.set_ylabel("% of the messages")
    axes.set_xlabel("from the enqueue call to the handler's start, ms")
    _legend(
        axes, [(text, colour, result) for _, text, colour, result in sorted(ends, key=lambda one: one[0])]
    )


def _legend_text(result: Result) -> str:
    median = result.values.get(P50)
    worst = result.values.get(P99)
    told = [f"p50 {number(median.median)}"] if median else []
    told += [f"p99 {number(worst.median)}"] if worst else []
    return f"{result.contestant.name}: {', '.join(told)} ms"


def _curves(axes: Axes, part: Part, name: str = RATE, unit: str = "messages/s") -> None:
    """A value as time goes by."""
    drawn, lowest, highest = [], math.inf, 0.0
    for result, colour in _coloured([one for one in part.results if name in one.curves]):
        curve = result.curves[name]
        axes.plot([x for x, _ in curve], [y for _, y in curve], color=colour, **_weight(result))
        tail = [y for _, y in curve[-max(len(curve) // 10, 1) :]]
        lowest = min(lowest, *(max(y, 1) for _, y in curve))
        highest = max(highest, *(y for _, y in curve))
        drawn.append((-sum(tail) / len(tail), result.contestant.name, colour, result))
    logarithmic = highest > WIDE * lowest
    if logarithmic:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    _scale(axes.yaxis, logarithmic=logarithmic)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds")
    axes.set_ylabel(unit)
    _legend(
        axes, [(text, colour, result) for _, text, colour, result in sorted(drawn, key=lambda one: one[0])]
    )


def _cpu(axes: Axes, part: Part) -> None:
    """CPU time of client and server per message, two marks a row."""
    results = [one for one in part.measured() if {CLIENT_CPU, SERVER_CPU} <= one.values.keys()]
    results.sort(key=lambda one: one.values[CLIENT_CPU].median + one.values[SERVER_CPU].median)
    names = [result.contestant.name for result in results]
    values = []
    for row, result in enumerate(results):
        client, server = (max(result.values[name].median, 0.01) for name in (CLIENT_CPU, SERVER_CPU))
        values += [client, server]
        place, colour = len(names) - 1 - row, _colour(result)
        axes.plot([client, server], [place, place], color=colour, linewidth=2.5, zorder=1)
        axes.scatter([client], [place], s=60, facecolor="white", edgecolor=colour, linewidth=2, zorder=2)
        axes.scatter([server], [place], s=60, color=colour, zorder=2)
    if _is_wide(values):
        axes.set_xscale("log")
    else:
        axes.set_xlim(left=0)
    _scale(axes.xaxis, logarithmic=_is_wide(values))
    axes.set_xlabel("CPU time per message, µs: ○ client, ● server")
    _name_rows(axes, names)


def _legend(axes: Axes, entries: Sequence[tuple[str, str, Result]]) -> None:
    """In the order of the curves, to their right."""
    handles = [axes.plot([], [], color=colour, **_weight(result))[0] for _, colour, result in entries]
    axes.legend(
        handles,
        [text for text, _, _ in entries],
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
    values = [result.values[RATE].median for result in results]
    _bar_panel(axes, part, part.headline, [result.contestant.name for result in results], values)
    axes.set_xlabel(_axis(part.headline, values))


def _latencies(axes: Axes, part: Part) -> None:
    """From the median to the 99th percentile."""
    results = [result for result in part.measured() if P50 in result.values]
    names = [result.contestant.name for result in results]
    for row, result in enumerate(results):
        place, colour, median = len(names) - 1 - row, _colour(result), result.values[P50].median
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


def _coloured(results: Sequence[Result]) -> list[tuple[Result, str]]:
    """Ours in one colour, and each of the others in one of its own, the same in every panel."""
    names = sorted(
        result.contestant.name for result in results if not result.contestant.name.startswith(OURS)
    )
    colours = {name: LINES[place % len(LINES)] for place, name in enumerate(names)}
    return [(result, colours.get(result.contestant.name, ACCENT)) for result in results]


def _weight(result: Result) -> dict[str, Any]:
    name = result.contestant.name
    return {
        "linewidth": 2.6 if name.startswith(OURS) else 1.7,
        "linestyle": "-" if name == OURS or not name.startswith(OURS) else "--",
        "zorder": 3 if name.startswith(OURS) else 2,
        "alpha": 0.7 if result.contestant.floor else 1.0,
    }


def _colour(result: Result) -> str:
    if result.contestant.name.startswith(OURS):
        return ACCENT
    return FLOOR if result.contestant.floor else OTHER


def _is_wide(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) > WIDE


def _axis(metric: Metric, values: Sequence[float]) -> str:
    scale = " (log scale)" if _is_wide(values) else ""
    return f"{metric.title}{', ' if metric.unit else ''}{metric.unit}{scale}"


def _scale(axis: Axes, *, logarithmic: bool) -> None:
    """Few ticks, and 1,000 rather than 10³."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    low, high = axis.get_view_interval()
    if logarithmic:
        few = high / low > 300
        axis.set_major_locator(LogLocator(subs=(1,) if few else (1, 2, 5)))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(4))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
