"""Verify: what keeps its contract is answered, what is large is measured, and what cannot be made safe is withheld."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.json.canonical import digest, digest_bytes
from libs.common.json.jsonio import dump, parse
from libs.common.redaction.scanner import Scanner
from libs.common.runtime.clock import SystemClock
from services.executor.adapters.registry.json_schema import output_contract
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import PLAIN, Obligation
from services.executor.domain.results.check import CheckedResult, check_result
from services.executor.domain.tool import Rendering, Tool
from services.executor.tests.samples import a_decision, a_request, a_tool

ANYTHING = output_contract(b"{}", ())


def look(
    value: Any, tool: Tool, *obligations: Obligation, scanner: Scanner | None = None
) -> tuple[CheckedResult, Invocation]:
    invocation = Invocation(a_request(), SystemClock(), None)
    invocation.decision = a_decision(obligations=obligations)
    return check_result(invocation, tool, value, scanner or Scanner()), invocation


def refusal(value: Any, tool: Tool, *obligations: Obligation, scanner: Scanner | None = None) -> Reason:
    with pytest.raises(MeshError) as caught:
        look(value, tool, *obligations, scanner=scanner)
    return caught.value.reason


def test_a_good_result_is_answered_as_it_is() -> None:
    found, invocation = look({"said": "x"}, a_tool())
    assert (found.content, found.rendered, found.value, found.large) == (b'{"said":"x"}', PLAIN, {"said": "x"}, False)
    assert found.payload.digest == digest({"said": "x"})
    assert invocation.changed == ()


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("value", [{}, {"said": 1}, nested(65), {"said": float("nan")}, {"said": {1, 2}}, 2**70])
def test_what_breaks_its_contract_or_has_no_form_is_never_a_success(value: Any) -> None:
    tool = a_tool() if isinstance(value, dict) else a_tool(output=ANYTHING)
    assert refusal(value, tool) is Reason.RESULT_INVALID


@pytest.mark.parametrize("size", [1, 20_000])
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_has_no_form_is_never_written_as_null(number: float, size: int) -> None:
    tool = a_tool(output=ANYTHING)
    assert refusal(["x" * size, None, [{"a": number}]], tool) is Reason.RESULT_INVALID
    assert look(["x" * size, None, 0.5], tool)[0].content.endswith(b",null,0.5]")


def test_a_large_result_is_measured_and_its_digest_is_of_its_bytes() -> None:
    value = {"said": "x" * 4_000_000, "many": [{}] * 100}
    found, _ = look(value, a_tool(output=ANYTHING))
    assert found.large
    assert found.content == dump(value)
    assert found.payload.digest == digest_bytes(found.content)
    assert parse(found.payload.summary) == {"truncated": True, "size_bytes": len(found.content)}
    assert look(value, a_tool(output=ANYTHING, summarized=False))[0].payload.summary == b""


def test_personal_matter_is_removed_everywhere_and_named() -> None:
    value = {"said": "mail alice@example.com", "rows": [{"card": "4111 1111 1111 1111"}, {"apiKey": "abc"}], "n": 1}
    tool = a_tool(output=ANYTHING, rendering=Rendering(model="{/said}"))
    found, invocation = look(value, tool, Obligation("redact_pii"))
    assert b"alice" not in found.content
    assert b"4111" not in found.content
    assert parse(found.content)["n"] == 1  # type: ignore[call-overload, index]
    assert invocation.changed == ("/said", "/rows/0/card", "/rows/1/apiKey")
    assert "alice" not in found.rendered.model
    assert found.payload.digest == digest(parse(found.content))


def test_what_cannot_be_examined_whole_is_withheld() -> None:
    tool, pii = a_tool(output=ANYTHING, max_result_bytes=1 << 20), Obligation("redact_pii")
    assert refusal({"said": "x" * 300_000}, tool, pii) is Reason.SANITIZATION_FAILED
    assert refusal([0] * 30_000, tool, pii) is Reason.SANITIZATION_FAILED
    # What another obligation removes first need not be examined.
    assert look({"said": "x" * 300_000}, tool, pii, Obligation("redact_fields", ("/said",)))[0].content == b"{}"


class Stumbling(Scanner):
    """A scanner that meets something it cannot handle."""

    def value(self, value: Any, declared: Any = None) -> Any:
        raise RecursionError


def test_a_scanner_that_fails_withholds_the_result() -> None:
    assert refusal({"said": "x"}, a_tool(), Obligation("redact_pii"), scanner=Stumbling()) is Reason.SANITIZATION_FAILED
