"""The evaluations of AuthZEN 1.0: a tool is resolved by the registry, and the question put to authz like any call's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc.aio

from libs.common.auth.jose import payload_of
from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import from_rpc_error
from services.gateway.authzen import convert
from services.gateway.authzen.model import (
    EXECUTE_ALL,
    Evaluation,
    Evaluations,
    InvalidEvaluation,
    decision_answer,
    error_answer,
    read_evaluation,
    read_evaluations,
)

if TYPE_CHECKING:
    from toolmesh.authz.v1.authz_service_pb2_grpc import AuthzServiceAsyncStub
    from toolmesh.registry.v1.registry_service_pb2_grpc import RegistryServiceAsyncStub

MAX_CONCURRENT = 8
# A tool that cannot be called is a denial; every other failure is an error.
_NO_TOOL = frozenset(
    {Reason.TOOL_NOT_FOUND, Reason.TOOL_VERSION_NOT_FOUND, Reason.TOOL_UNAVAILABLE, Reason.TOOL_DEPRECATED}
)
_UNAUTHENTICATED = 16


class Evaluate:
    """Evaluates with the caller's own token; authz decides what the caller may ask."""

    def __init__(self, registry: RegistryServiceAsyncStub, authz: AuthzServiceAsyncStub) -> None:
        self._registry, self._authz = registry, authz

    async def one(self, payload: bytes, token: str, trace_id: str) -> dict[str, Any]:
        """Evaluate the body of one evaluation."""
        return await self._answer(read_evaluation(payload), _own_names(token))

    async def many(self, payload: bytes, token: str, trace_id: str) -> dict[str, Any]:
        """Evaluate the body of many in order, up to the one that ends them by their semantic."""
        asked, own = read_evaluations(payload), _own_names(token)
        if isinstance(asked, Evaluation):
            return await self._answer(asked, own)
        if asked.semantic == EXECUTE_ALL:
            return {"evaluations": await self._all(asked, own, trace_id)}
        answers = []
        for entry in asked.entries:
            answers.append(await self._entry(entry, own, trace_id))
            if asked.ends_with(answers[-1]["decision"]):
                break
        return {"evaluations": answers}

    async def _all(self, asked: Evaluations, own: frozenset[str], trace_id: str) -> list[dict[str, Any]]:
        slots = asyncio.Semaphore(MAX_CONCURRENT)

        async def answer(entry: Evaluation | InvalidEvaluation) -> dict[str, Any]:
            async with slots:
                return await self._entry(entry, own, trace_id)

        asking = [asyncio.ensure_future(answer(entry)) for entry in asked.entries]
        try:
            # Not a TaskGroup: the first failure is raised as it is.
            return await asyncio.gather(*asking)
        finally:
            # After a failure the rest is not needed.
            for task in asking:
                task.cancel()

    async def _entry(self, entry: Evaluation | InvalidEvaluation, own: frozenset[str], trace_id: str) -> dict[str, Any]:
        if isinstance(entry, InvalidEvaluation):
            return error_answer(entry.error, trace_id)
        try:
            return await self._answer(entry, own)
        except MeshError as error:
            if error.row.grpc_status == _UNAUTHENTICATED:
                raise
            return error_answer(error, trace_id)

    async def _answer(self, evaluation: Evaluation, own: frozenset[str]) -> dict[str, Any]:
        if evaluation.resource["type"] != convert.RESOURCE or evaluation.action["name"] != convert.ACTION:
            reason = f"Only the action {convert.ACTION} on resources of type {convert.RESOURCE} is supported."
            return decision_answer(False, {"outcome": "deny", "reasons": [reason]})
        try:
            resolved = await self._registry.ResolveTool(convert.resolve_request(evaluation))
            request = convert.check_request(evaluation, resolved.version, own)
            return convert.decision_json((await self._authz.Check(request)).decision)
        except grpc.aio.AioRpcError as failure:
            error = from_rpc_error(failure)
            if error.reason not in _NO_TOOL:
                raise error from None
            return decision_answer(False, {"outcome": "deny", "reason": error.reason.name, "reasons": [error.message]})


def _own_names(token: str) -> frozenset[str]:
    """Return the names that the unverified token claims. Authz verifies it; nothing is decided here."""
    try:
        claims = payload_of(token)
    except (MeshError, IndexError):
        return frozenset()
    return frozenset(name for name in (claims.get("agent") or claims.get("sub"),) if isinstance(name, str))
