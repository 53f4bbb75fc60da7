"""Every route against requests that its own document allows, and against some that it does not."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

import pysqlbox
from pysqlbox import service
from pysqlbox.service.application import OPERATIONS
from tests.service.support import TOKENS, bearer

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

PLAIN = {
    f"{each.method} {each.path}" for each in OPERATIONS if not (each.parameters or each.queries or each.body)
}
"""Routes that take nothing, so that nothing can be wrong with it."""
EXAMPLES = 8
"""Requests of each kind to each route: a bounded test, which finds the coarse faults."""


@pytest.mark.dialect("postgres")
@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
def test_every_route_keeps_to_its_document(deployment: pysqlbox.Deployment, mode: str) -> None:
    from schemathesis.generation.modes import GenerationMode
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    app = service.app(deployment, tokens=service.Tokens(TOKENS), dashboard=False)
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    seen = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        seen += 1
        if mode == "NEGATIVE" and operation.label in PLAIN:
            continue
        strategy = operation.as_strategy(generation_mode=GenerationMode[mode])

        @settings(
            max_examples=EXAMPLES, deadline=None, database=None, derandomize=True,
            phases=[Phase.generate], suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=strategy)
        def ask(case: object) -> None:
            answer = case.call(headers=bearer("admin"))  # type: ignore[attr-defined]  # schemathesis' Case
            assert answer.status_code < 500, answer.text
            # What a cron text or two times must be to each other, no schema says.
            case.validate_response(answer, excluded_checks=[positive_data_acceptance])  # type: ignore[attr-defined]  # the same

        ask()
    assert seen == len(OPERATIONS)
