"""The results for people and programs: suite.md and suite.json."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.queue.figures import Spread
from benchmarks.suite import headline, reading
from benchmarks.suite.headline import number
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
        ("held_snapshot", "1 connection", "kept", "of the rate at its beginning"),
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
BEGIN = "<!-- benchmarks: python -m benchmarks --report writes from here"
END = "<!-- benchmarks: to here -->"
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
    about = {**store.about, "setups": store.setups}
    told = {
        f"{name}.json": json.dumps(as_data(about, parts), indent=1, ensure_ascii=False) + "\n",
        f"{name}.md": markdown(about, parts, folder / pictures),
    }
    for file, text in told.items():
        (folder / file).write_text(text, encoding="utf-8")
    return [folder / file for file in told]


def write_front_page(page: Path, told: Mapping[str, Any]) -> bool:
    """Put the results, as suite.json has them, between the marks of a page; false if it has none."""
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    mark, end, after = rest.partition(END)
    if not begin or not end:
        return False
    rest_of_line = mark.partition("\n")[0]
    page.write_text(
        f"{before}{begin}{rest_of_line}\n\n{headline.front_page(told)}\n{end}{after}", encoding="utf-8"
    )
    return True


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
    lines += ["", READING, "", *reading.glossary(), "", *_others_better(parts)]
    short = as_data(about, parts)["scenarios"]
    for level, title in LEVELS.items():
        there = [part for part in parts if part.scenario.level == level]
        if not there:
            continue
        lines += [f"## {title}", "", *in_short(level, short)]
        for scenario in _unique(part.scenario for part in there):
            lines += _scenario(
                scenario, [part for part in there if part.scenario is scenario], about, pictures
            )
        lines += _contestants(level, there, about)
    return "\n".join(lines).rstrip() + "\n"


def in_short(level: str, scenarios: Sequence[Mapping[str, Any]]) -> list[str]:
    """One table of the most telling columns; what does best in the first stands first, floors last."""
    found = {
        (scenario["name"], result["variant"], result["contestant"]): result
        for scenario in scenarios
        for result in scenario["results"]
    }
    there = {key[:2] for key in found}
    columns = [one for one in IN_SHORT[level] if one[:2] in there]
    if not columns:
        return []
    rows: dict[str, list[str]] = {}
    floors: set[str] = set()
    for place, (scenario, variant, value, _) in enumerate(columns):
        for (_, _, name), result in (
            (key, one) for key, one in found.items() if key[:2] == (scenario, variant)
        ):
            if value in result["values"]:
                row = rows.setdefault(name, [""] * len(columns))
                row[place] = number(result["values"][value]["median"])
                floors |= {name} if result["floor"] else set()
    lines = [
        "| " + " | ".join(["", *(head for *_, head in columns)]) + " |",
        "|---|" + "---:|" * len(columns),
    ]
    for name in sorted(rows, key=lambda name: name in floors):
        title = f"*{name}*, floor" if name in floors else f"**{name}**" if name == OURS else name
        lines.append("| " + " | ".join([title, *rows[name]]) + " |")
    return [*lines, ""]


def _others_better(parts: Sequence[Part]) -> list[str]:
    """Every headline at which another queue does better than the best of ours."""
    rows = []
    for part in parts:
        metric, sign = part.headline, -1 if part.headline.better == "higher" else 1
        ours = [one for one in part.measured() if one.contestant.name.startswith(OURS)]
        if not ours:
            continue
        best = min(ours, key=lambda one: sign * one.values[metric.name].median)
        mine = best.values[metric.name].median
        better = [
            (one.contestant.name, one.values[metric.name].median)
            for one in part.measured()
            if not one.contestant.floor
            and one not in ours
            and sign * one.values[metric.name].median < sign * mine
        ]
        rows += [
            f"| {part.scenario.title}, {part.variant} | {_words(metric)} | {name} | **{number(value)}** | "
            f"{number(mine)} ({best.contestant.name}) |"
            for name, value in better
        ]
    if not rows:
        return []
    return [
        "## Where others were better",
        "",
        "Every scenario's headline at which another queue's median beat the best of ours:",
        "",
        "| scenario | measured | queue | its median | ours |",
        "|---|---|---|---:|---:|",
        *rows,
        "",
    ]


def _heading(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("run", _run(run)) for run in about.get("runs", [about])]
    rows += [("measured", _told_setup(setup)) for setup in about.get("setups", [])]
    if about.get("quick"):
        rows.append(("quick", "yes: a try-out, not a measurement"))
    if "machine" in about:
        rows.append(("machine", str(about["machine"])))
    server = about.get("server", {})
    if server:
        told = ", ".join(f"{name} {value}" for name, value in server.items() if name != "version")
        rows.append(("PostgreSQL", f"{server.get('version', '')}: {told}"))
    if "file system" in about:
        rows.append(("file system", str(about["file system"])))
    if about.get("changed settings"):
        rows.append(("changed settings", ", ".join(f"{k}={v}" for k, v in about["changed settings"].items())))
    return rows


def _told_setup(setup: Mapping[str, Any]) -> str:
    version = setup.get("server", {}).get("version", "").partition(" ")[0]
    commit, machine = setup.get("commit", "unknown"), setup.get("machine", "")
    return f"pysqlbox as of commit `{commit}`, PostgreSQL {version}, {machine}"


def _run(run: Mapping[str, Any]) -> str:
    told = [f"`{run['command']}`"] if "command" in run else []
    told += [f"{run['date']}"] if "date" in run else []
    if "rounds" in run:
        short = "" if run.get("whole", True) else f" ({run.get('ended', 'stopped by its time limit')})"
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
    lines = [f"### {scenario.title}", "", f"*{reading.QUESTIONS[scenario.name]}*", ""]
    lines += [f"`{scenario.name}`. {description}".rstrip(), ""]
    for file in [pictures / f"{scenario.name}{suffix}.png" for suffix in ("", "_cpu", "_size", "_tables")]:
        if file.exists():
            lines += [f"![{scenario.title}]({pictures.name}/{file.name})", ""]
    for part in parts:
        if len(scenario.variants) > 1:
            lines += [f"**{part.variant}**", ""]
        if part.setup and part.setup != about.get("setups", [{}])[-1]:
            lines += [f"(Of {_told_setup(part.setup)}.)", ""]
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
    there = {result.contestant.name for part in parts for result in part.results}
    for name, reason in missing.items():
        where, _, who = name.partition(": ")
        if where == level and who not in there:
            lines.append(f"- {who} is left out: {reason}")
    return [*lines, ""]


def _unique(things: Iterable[Any]) -> list[Any]:
    return list({id(thing): thing for thing in things}.values())


def as_data(about: Mapping[str, Any], parts: Sequence[Part]) -> dict[str, Any]:
    """What suite.json has: every median with its spread, and the curves."""
    scenarios = []
    for scenario in _unique(part.scenario for part in parts):
        scenarios.append(
            {
                "name": scenario.name,
                "title": scenario.title,
                "level": scenario.level,
                "metrics": [asdict(metric) for metric in scenario.metrics],
                "results": [
                    {"variant": part.variant, "commit": part.setup.get("commit", ""), **_result(result)}
                    for part in parts
                    if part.scenario is scenario
                    for result in part.results
                ],
            }
        )
    return {"about": dict(about), "scenarios": scenarios}


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
