"""The results for people and programs: suite.md and suite.json."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.queue.figures import Spread
from benchmarks.suite.runner import Metric, Scenario
from benchmarks.suite.store import CLIENT_CPU, P50, P99, RATE, SERVER_CPU, Store
from benchmarks.suite.summary import OURS, Part, Result, summarise, thinned

IN_SHORT: Mapping[str, Sequence[tuple[str, str, str, str]]] = {
    "sql": (
        ("enqueue_single", "1 connection", RATE, "enqueued one by one, /s"),
        ("enqueue_bulk", "1 connection", RATE, "enqueued in thousands, /s"),
        ("drain_routine", "1 connection, batches of 50", RATE, "drained by 1 connection, batches of 50, /s"),
        ("drain_routine", "1 connection, batches of 500", RATE, "batches of 500, /s"),
        ("drain_routine", "2 connections, batches of 500", RATE, "by 2, batches of 500, /s"),
        ("held_snapshot", "1 connection", "last_rate", "in and out at the end of a held snapshot, /s"),
    ),
    "worker": (
        ("worker_drain", "1 process", RATE, "drained by 1 process, /s"),
        ("worker_drain", "2 processes", RATE, "by 2, /s"),
        ("worker_drain", "1 process", CLIENT_CPU, "worker's CPU, µs/message"),
        ("worker_drain", "1 process", SERVER_CPU, "server's CPU, µs/message"),
        ("latency_idle", "1 process", P50, "latency p50, ms"),
        ("latency_idle", "1 process", P99, "p99, ms"),
    ),
}
"""The columns of the first table of each level: scenario, variant, value, and the column's head."""
LEVELS = {"sql": "Statements and routines", "worker": "Whole workers"}
READING = (
    "Medians of the rounds; in brackets the lowest and the highest (from four rounds on the quartiles). All "
    f"contestants take turns, and *relative to {OURS}* is the median of the ratios within a round: what the "
    "machine does meanwhile hits all alike. CPU of the server is that of all its processes, WAL writer and "
    "autovacuum included. *Floors* are no queues; they do less, and show what the machine can do."
)


def write(
    folder: Path, store: Store, scenarios: Sequence[Scenario[Any]], *, name: str, pictures: str
) -> list[Path]:
    """Both files; answers their paths. `pictures`: the folder beside them that may have some."""
    parts = summarise(store, scenarios)
    folder.mkdir(parents=True, exist_ok=True)
    told = {
        f"{name}.json": as_json(store.about, parts),
        f"{name}.md": markdown(store.about, parts, folder / pictures),
    }
    for file, text in told.items():
        (folder / file).write_text(text, encoding="utf-8")
    return [folder / file for file in told]


def number(value: float) -> str:
    """As many digits as mean something."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def terminal(store: Store, scenarios: Sequence[Scenario[Any]]) -> str:
    """The headlines, for the end of a run."""
    lines = []
    for part in summarise(store, scenarios):
        lines.append(f"{part.scenario.title}, {part.variant} ({part.headline.title}, {part.headline.unit})")
        rows = [
            (result.contestant.name, number(result.values[part.headline.name].median), _relative(result))
            for result in part.measured()
        ]
        lines += [f"  {name:<32}{value:>12}{relative:>10}" for name, value, relative in rows]
        lines += [
            f"  {one.contestant.name:<32}{'; '.join(one.problems)}" for one in part.results if one.problems
        ]
    return "\n".join(lines)


def markdown(about: Mapping[str, Any], parts: Sequence[Part], pictures: Path) -> str:
    """The whole run as a page; pictures are linked where there are some."""
    lines = ["# Benchmark results", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in _heading(about)]
    lines += ["", READING, ""]
    for level, title in LEVELS.items():
        there = [part for part in parts if part.scenario.level == level]
        if not there:
            continue
        lines += [f"## {title}", "", *in_short(level, there)]
        for scenario in _unique(part.scenario for part in there):
            lines += _scenario(
                scenario, [part for part in there if part.scenario is scenario], about, pictures
            )
        lines += _contestants(level, there, about)
    return "\n".join(lines).rstrip() + "\n"


def in_short(level: str, parts: Sequence[Part]) -> list[str]:
    """One table of the most telling columns; what does best in the first stands first, floors last."""
    found = {(part.scenario.name, part.variant): part for part in parts}
    columns = [one for one in IN_SHORT[level] if one[:2] in found]
    if not columns:
        return []
    cells: dict[tuple[str, int], str] = {}
    for place, (scenario, variant, value, _) in enumerate(columns):
        for result in found[scenario, variant].results:
            if value in result.values:
                cells[result.contestant.name, place] = number(result.values[value].median)
    contestants = {
        result.contestant.name: result.contestant
        for scenario, variant, _, _ in columns
        for result in found[scenario, variant].results
    }
    lines = [
        "| " + " | ".join(["", *(head for *_, head in columns)]) + " |",
        "|---|" + "---:|" * len(columns),
    ]
    for name in sorted(contestants, key=lambda name: contestants[name].floor):
        title = f"*{name}*, floor" if contestants[name].floor else name
        row = [cells.get((name, place), "") for place in range(len(columns))]
        lines.append("| " + " | ".join([f"**{title}**" if name == OURS else title, *row]) + " |")
    return [*lines, ""]


def _heading(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("run", _run(run)) for run in about.get("runs", [about])]
    if about.get("quick"):
        rows.append(("quick", "yes: a try-out, not a measurement"))
    if "machine" in about:
        rows.append(("machine", str(about["machine"])))
    server = about.get("server", {})
    if server:
        told = ", ".join(f"{name} {value}" for name, value in server.items() if name != "version")
        rows.append(("PostgreSQL", f"{server.get('version', '')}: {told}"))
    if about.get("changed settings"):
        rows.append(("changed settings", ", ".join(f"{k}={v}" for k, v in about["changed settings"].items())))
    return rows


def _run(run: Mapping[str, Any]) -> str:
    told = [f"`{run['command']}`"] if "command" in run else []
    told += [f"{run['date']}"] if "date" in run else []
    if "rounds" in run:
        short = "" if run.get("whole", True) else " (stopped by its time limit)"
        told.append(f"{run['rounds']} round{'s' if run['rounds'] > 1 else ''}{short}")
    if "load average at the end" in run:
        told.append(
            f"load average from {run['load average at the start']} to {run['load average at the end']}"
        )
    return ", ".join(told)


def _scenario(
    scenario: Scenario[Any], parts: Sequence[Part], about: Mapping[str, Any], pictures: Path
) -> list[str]:
    description = about.get("descriptions", {}).get(scenario.name, "")
    if description and not description.endswith("."):
        description += "."
    lines = [f"### {scenario.title}", "", f"`{scenario.name}`. {description}".rstrip(), ""]
    for file in [pictures / f"{scenario.name}{suffix}.png" for suffix in ("", "_cpu", "_size")]:
        if file.exists():
            lines += [f"![{scenario.title}]({pictures.name}/{file.name})", ""]
    for part in parts:
        if len(scenario.variants) > 1:
            lines += [f"**{part.variant}**", ""]
        lines += _table(part)
        problems = [(one.contestant.name, text) for one in part.results for text in one.problems]
        lines += [f"- {name}: {text}" for name, text in problems]
        lines += [""] if problems else []
    return lines


def _table(part: Part) -> list[str]:
    metrics = [
        metric
        for metric in part.scenario.metrics
        if any(metric.name in result.values for result in part.results)
    ]
    if not metrics:
        return []
    heads = ["", _words(metrics[0]), f"relative to {OURS}", *map(_words, metrics[1:])]
    heads.append("rounds")
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for result in part.measured():
        name = result.contestant.name
        cells = [f"*{name}*, floor" if result.contestant.floor else name, _with_spread(result, metrics[0])]
        cells.append(_relative(result))
        for metric in metrics[1:]:
            spread = result.values.get(metric.name)
            cells.append("-" if spread is None else number(spread.median))
        lines.append("| " + " | ".join([*cells, str(result.rounds)]) + " |")
    return [*lines, ""]


def _words(metric: Metric) -> str:
    return f"{metric.title}, {metric.unit}" if metric.unit else metric.title


def _with_spread(result: Result, metric: Metric) -> str:
    spread = result.values[metric.name]
    text = f"**{number(spread.median)}**"
    return text if spread.count < 2 else f"{text} ({number(spread.low)} to {number(spread.high)})"


def _relative(result: Result) -> str:
    if result.relative is None or result.contestant.name == OURS:
        return ""
    value = result.relative.median
    return f"{value:.3f}" if value < 0.1 else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _contestants(level: str, parts: Sequence[Part], about: Mapping[str, Any]) -> list[str]:
    lines = ["### Contestants", ""]
    versions, missing = about.get("versions", {}), about.get("missing", {})
    for contestant in _unique(result.contestant for part in parts for result in part.results):
        told = ", ".join(
            f"{name} {one}" for name, one in versions.get(f"{level}: {contestant.name}", {}).items()
        )
        kind = "a floor" if contestant.floor else f"it {contestant.keeps}"
        lines.append(f"- **{contestant.name}**{f' ({told})' if told else ''}: {contestant.source}; {kind}.")
    for name, reason in missing.items():
        where, _, who = name.partition(": ")
        if where == level:
            lines.append(f"- {who} is left out: {reason}")
    return [*lines, ""]


def _unique(things: Iterable[Any]) -> list[Any]:
    return list({id(thing): thing for thing in things}.values())


def as_json(about: Mapping[str, Any], parts: Sequence[Part]) -> str:
    """Every median with its spread, and the curves."""
    scenarios = []
    for scenario in _unique(part.scenario for part in parts):
        scenarios.append(
            {
                "name": scenario.name,
                "title": scenario.title,
                "level": scenario.level,
                "metrics": [asdict(metric) for metric in scenario.metrics],
                "results": [
                    {"variant": part.variant, **_result(result)}
                    for part in parts
                    if part.scenario is scenario
                    for result in part.results
                ],
            }
        )
    return json.dumps({"about": dict(about), "scenarios": scenarios}, indent=1, ensure_ascii=False) + "\n"


def _result(result: Result) -> dict[str, Any]:
    return {
        "contestant": result.contestant.name,
        "floor": result.contestant.floor,
        "rounds": result.rounds,
        "messages": result.messages,
        "values": {name: _spread(spread) for name, spread in result.values.items()},
        f"relative to {OURS}": _spread(result.relative) if result.relative else None,
        "curves": {name: thinned(curve) for name, curve in result.curves.items()},
        "problems": list(result.problems),
    }


def _spread(spread: Spread) -> dict[str, float]:
    return {"median": spread.median, "low": spread.low, "high": spread.high}
