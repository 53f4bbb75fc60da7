"""Results as text: lines for the terminal, a Markdown page, and JSON with every number."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.queue.figures import Figure, Outcome, Verdict


def number(value: float | None, digits: int = 0) -> str:
    """A readable number, or a dash."""
    return "-" if value is None else f"{value:,.{digits}f}"


def verdict_cells(verdict: Verdict) -> list[str]:
    """What, ratio, spread, bar, met or not."""
    met = {None: "-", True: "met", False: "NOT MET"}[verdict.met]
    unit = "" if verdict.unit == "x" else f" {verdict.unit}"
    bar = "-" if verdict.bar is None else f"{verdict.sense} {verdict.bar:g}{unit}"
    spread = f"{verdict.ratio.low:.2f} to {verdict.ratio.high:.2f}"
    return [verdict.what, f"{verdict.ratio.median:.2f}{unit}", spread, bar, met]


def figure_cells(figure: Figure) -> list[str]:
    """What, median with unit, spread, CPU of backends and clients."""
    spread = f"{number(figure.value.low)} to {number(figure.value.high)}"
    server = number(figure.server_cpu_micros, 1)
    return [
        figure.what,
        number(figure.value.median),
        figure.unit,
        spread,
        server,
        number(figure.client_cpu_micros, 1),
    ]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


VERDICT_HEADS = ("ratio", "median", "spread", "bar", "")
FIGURE_HEADS = ("measured", "median", "unit", "spread", "backend CPU µs", "client CPU µs")


def terminal(outcome: Outcome) -> str:
    """Aligned columns."""
    lines = [f"{outcome.scenario}: {outcome.setting}"]
    for heads, rows in (
        (FIGURE_HEADS, [figure_cells(figure) for figure in outcome.figures]),
        (VERDICT_HEADS, [verdict_cells(verdict) for verdict in outcome.verdicts]),
    ):
        widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
        for row in [heads, *rows]:
            cells = [
                cell.ljust(w) if i == 0 else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  " + "  ".join(cells).rstrip())
        lines.append("")
    return "\n".join(lines)


def markdown(outcomes: Sequence[Outcome], about: Mapping[str, str]) -> str:
    """The whole run as a page."""
    lines = ["# Queue benchmarks", ""]
    lines += _table(("", ""), [[key, value] for key, value in about.items()])
    lines += ["", "## Bars", ""]
    bars = [
        [outcome.scenario, *verdict_cells(verdict)]
        for outcome in outcomes
        for verdict in outcome.verdicts
        if verdict.bar is not None
    ]
    lines += _table(("scenario", *VERDICT_HEADS), bars)
    for outcome in outcomes:
        lines += ["", f"## {outcome.scenario}", "", f"{outcome.setting}.", ""]
        lines += _table(FIGURE_HEADS, [figure_cells(figure) for figure in outcome.figures])
        lines += [""]
        lines += _table(VERDICT_HEADS, [verdict_cells(verdict) for verdict in outcome.verdicts])
    return "\n".join(lines) + "\n"


def as_json(outcomes: Sequence[Outcome], about: Mapping[str, str]) -> str:
    """Every number of the run."""
    documents = []
    for outcome in outcomes:
        document = asdict(outcome)
        for verdict, told in zip(outcome.verdicts, document["verdicts"], strict=True):
            told["met"] = verdict.met
        documents.append(document)
    return json.dumps({"about": dict(about), "scenarios": documents}, indent=2, ensure_ascii=False) + "\n"


def write(folder: Path, name: str, outcomes: Sequence[Outcome], about: Mapping[str, str]) -> list[Path]:
    """Both files; answers their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix, text in ((".json", as_json(outcomes, about)), (".md", markdown(outcomes, about))):
        path = folder / f"{name}{suffix}"
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written
