"""Reads `{schema, collations, sources}` as JSON from stdin, writes the findings as JSON to stdout."""

from __future__ import annotations

import json
import sys

from tools.tsql_gate.engine.binder import bind
from tools.tsql_gate.engine.finding import Finding
from tools.tsql_gate.engine.lint import lint
from tools.tsql_gate.engine.model import validate
from tools.tsql_gate.engine.seeks import seeks


def main() -> None:
    """Runs every check over the sources, in deployment order."""
    request = json.load(sys.stdin)
    schema: str = request["schema"]
    sources = [(str(label), str(text)) for label, text in request["sources"]]
    findings: list[Finding] = [*lint(sources), *seeks(sources), *validate(sources, schema)]
    for collation in request["collations"]:
        findings += bind(sources, schema, collation)
    json.dump([finding.as_json() for finding in findings], sys.stdout)


main()
