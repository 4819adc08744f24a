"""When an owner fell silent: the tool's rule decides, what is decided is kept, and nothing is guessed."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.errors import MeshError, Reason, Violation
from libs.common.json.jsonio import dump, parse
from libs.common.runtime.clock import SystemClock
from services.executor.domain import errors
from services.executor.domain.idempotency import errors as key_errors
from services.executor.domain.idempotency.unknown_outcome import (
    MOST_RUNS,
    ClaimLostError,
    UnknownOutcomes,
    UnresolvedClaim,
    late_owner_error,
)
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import PLAIN, Claim, ClaimOutcome, PayloadDigest, Request, Result, Source
from services.executor.domain.results.check import VerifiedResult
from services.executor.domain.tool import Mutation, Tool, UncertainOutcome
from services.executor.tests.fakes import KnownTools, MemoryClaims, MemoryCommits
from services.executor.tests.keys import a_claim
from services.executor.tests.samples import a_request, a_result, a_tool, a_write_tool

STATUS = a_tool(name="tools/core.status/versions/2.1.0", qualified="core.status", version="2.1.0")
FIRST = "01890000-0000-7000-8000-000000000001"


class Case:
    """One doubted key, what the status tool answers about it, and what becomes of it."""

    def __init__(self, rule: UncertainOutcome, *, answer: Any = None, status: Tool = STATUS) -> None:
        self.answer = answer
        self.asked: list[Request] = []
        self.tool = a_write_tool(uncertain=rule, status_tool="status")
        self.claims, self.commits, self.claim = MemoryClaims(), MemoryCommits(), a_claim()
        self.uncertain = UnknownOutcomes(
            KnownTools(self.tool, status), self.call, self.claims, self.commits, SystemClock()
        )
        self.invocation = Invocation(a_request(idempotency_key="k"), SystemClock(), None)

    async def call(self, request: Request) -> Result:
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return a_result(content=dump(self.answer), evidence=("records/status",))

    async def resolve(self, runs: tuple[str, ...] = (FIRST,)) -> ClaimOutcome | None:
        """Take the key over from these runs and resolve what they left."""
        await self.claims.acquire(self.claim)
        doubted = UnresolvedClaim(
            runs[0], key_errors.outcome_unknown(runs[0], "keys/k"), runs=runs, exhausted=len(runs) >= MOST_RUNS
        )
        return await self.uncertain.resolve(self.invocation, self.tool, self.claim, doubted, self.verify)

    async def verify(self, value: Any) -> VerifiedResult:
        if not isinstance(value, dict):
            raise errors.result_invalid([Violation("", "type", "is no object")])
        return VerifiedResult(dump(value), PayloadDigest("sha256:0"), PLAIN)

    @property
    def kept(self) -> ClaimOutcome | None:
        [(_, settled)] = self.claims.held.values()
        return settled


def reason_of(settled: ClaimOutcome | None) -> Reason:
    assert settled is not None
    assert isinstance(settled.outcome, MeshError)
    return settled.outcome.reason


async def test_what_may_not_be_repeated_is_left_to_a_person_and_kept_for_everyone() -> None:
    case = Case(UncertainOutcome.FAIL)
    settled = await case.resolve()
    assert reason_of(settled) is Reason.UNKNOWN_OUTCOME
    assert case.kept == settled
    assert settled is not None
    assert (settled.invocation_id, type(settled)) == (FIRST, ClaimOutcome)
    assert case.asked == []


async def test_what_happened_is_answered_as_the_first_calls_result() -> None:
    case = Case(UncertainOutcome.QUERY_STATUS, answer={"happened": True, "result": {"said": "hello"}})
    settled = await case.resolve()
    assert settled is not None
    assert isinstance(settled.outcome, Result)
    result = settled.outcome
    assert (result.content, result.invocation_id, result.source) == (b'{"said":"hello"}', FIRST, Source.REPLAY)
    assert (result.tool_version, result.tool_digest, result.replayed) == (case.tool.name, case.tool.digest, True)
    assert result.evidence == ("records/status",)
    assert case.kept == settled


async def test_what_did_not_happen_is_run_and_nothing_is_kept() -> None:
    case = Case(UncertainOutcome.QUERY_STATUS, answer={"happened": False})
    assert await case.resolve() is None
    assert case.kept is None


async def test_the_status_tool_is_asked_in_the_callers_name_about_every_run_and_hears_no_arguments() -> None:
    case = Case(UncertainOutcome.QUERY_STATUS, answer={"happened": False})
    await case.resolve((FIRST, "second"))
    [asked] = case.asked
    assert parse(asked.arguments) == {"idempotency_key": "k", "invocation_ids": [FIRST, "second"]}
    assert (asked.tool, asked.version, asked.tool_digest) == ("status", "2.1.0", STATUS.digest)
    assert asked.caller is case.invocation.request.caller
    assert (asked.idempotency_key, asked.trace_id) == ("", case.invocation.request.trace_id)
    assert asked.deadline == case.invocation.deadline.run_until


async def test_without_a_deadline_the_status_tool_has_none_either() -> None:
    case = Case(UncertainOutcome.QUERY_STATUS, answer={"happened": False})
    case.invocation = Invocation(a_request(idempotency_key="k", deadline=None), SystemClock(), None)
    await case.resolve()
    assert case.asked[0].deadline is None


@pytest.mark.parametrize(
    "answer",
    [
        {"happened": "yes"},
        {"happened": 1, "result": {}},
        {"happened": None},
        {},
        [],
        "true",
        None,
        errors.execution_failed("no"),
        MeshError(Reason.PERMISSION_DENIED),
        errors.tool_not_found("status"),
    ],
)
async def test_an_answer_that_says_neither_leaves_it_to_a_person(answer: Any) -> None:
    case = Case(UncertainOutcome.QUERY_STATUS, answer=answer)
    assert reason_of(await case.resolve()) is Reason.UNKNOWN_OUTCOME
    assert case.kept is not None


async def test_a_status_tool_that_is_away_decides_nothing() -> None:
    case = Case(UncertainOutcome.QUERY_STATUS, answer=MeshError(Reason.EXTERNAL_UNAVAILABLE))
    with pytest.raises(MeshError) as caught:
        await case.resolve()
    assert (caught.value.reason, caught.value.row.retryable) == (Reason.SERVICE_UNAVAILABLE, True)
    assert case.kept is None


@pytest.mark.parametrize("mutation", [Mutation.WRITE_REVERSIBLE, Mutation.WRITE_IRREVERSIBLE])
async def test_a_status_tool_that_could_change_something_is_not_asked(mutation: Mutation) -> None:
    writer = a_tool(name=STATUS.name, qualified="core.status", mutation=mutation)
    case = Case(UncertainOutcome.QUERY_STATUS, answer={"happened": False}, status=writer)
    assert reason_of(await case.resolve()) is Reason.UNKNOWN_OUTCOME
    assert case.asked == []


@pytest.mark.parametrize("answer", [{"happened": True}, {"happened": True, "result": "text"}])
async def test_a_result_that_breaks_the_contract_is_no_success_though_it_happened(answer: Any) -> None:
    case = Case(UncertainOutcome.QUERY_STATUS, answer=answer)
    assert reason_of(await case.resolve()) is Reason.RESULT_INVALID
    assert reason_of(case.kept) is Reason.RESULT_INVALID


async def test_a_call_that_keeps_killing_its_owners_is_left_to_a_person() -> None:
    case = Case(UncertainOutcome.QUERY_STATUS, answer={"happened": False})
    runs = tuple(str(number) for number in range(MOST_RUNS))
    assert reason_of(await case.resolve(runs)) is Reason.UNKNOWN_OUTCOME
    assert case.asked == []


async def test_who_is_overtaken_while_it_resolves_answers_nothing_of_its_own() -> None:
    case = Case(UncertainOutcome.FAIL)

    async def taken(claim: Claim, settled: ClaimOutcome) -> None:
        raise ClaimLostError

    case.claims.settle = taken  # type: ignore[method-assign]
    with pytest.raises(MeshError) as caught:
        await case.resolve()
    assert (caught.value.reason, caught.value.row.retryable) == (Reason.SERVICE_UNAVAILABLE, True)


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (UncertainOutcome.FAIL, Reason.UNKNOWN_OUTCOME),
        (UncertainOutcome.REPEAT, Reason.SERVICE_UNAVAILABLE),
        (UncertainOutcome.QUERY_STATUS, Reason.SERVICE_UNAVAILABLE),
    ],
)
def test_the_caller_of_a_late_owner_gets_the_shared_answer_or_may_retry(rule: UncertainOutcome, reason: Reason) -> None:
    assert late_owner_error(a_write_tool(uncertain=rule), a_claim()).reason is reason


def test_a_doubt_taken_for_an_ending_is_an_unknown_outcome() -> None:
    doubted = UnresolvedClaim(FIRST, key_errors.outcome_unknown(FIRST, "keys/k"), runs=(FIRST,))
    assert reason_of(doubted) is Reason.UNKNOWN_OUTCOME
