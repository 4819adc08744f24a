"""The evaluations of AuthZEN 1.0: a tool is resolved by the registry, and the question put to authz like any call's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc.aio

from libs.common.auth.jose import payload_of
from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import from_rpc_error
from services.gateway.authzen import convert as convert
from services.gateway.authzen.model import (
    EXECUTE_ALL,
    Evaluation,
    Evaluations,
    Unaskable,
    answer_of,
    failed,
    read_evaluation,
    read_evaluations,
)

if TYPE_CHECKING:
    from toolmesh.authz.v1.authz_service_pb2_grpc import AuthzServiceAsyncStub
    from toolmesh.registry.v1.registry_service_pb2_grpc import RegistryServiceAsyncStub

AT_ONCE = 8
# A question about a tool that cannot be called is answered; everything else that goes wrong is no answer.
_NO_TOOL = frozenset(
    {Reason.TOOL_NOT_FOUND, Reason.TOOL_VERSION_NOT_FOUND, Reason.TOOL_UNAVAILABLE, Reason.TOOL_DEPRECATED}
)
_UNAUTHENTICATED = 16


class Evaluate:
    """Answers evaluations with the caller's own token: who may ask what is decided behind the gateway."""

    def __init__(self, registry: RegistryServiceAsyncStub, authz: AuthzServiceAsyncStub) -> None:
        self._registry, self._authz = registry, authz

    async def one(self, payload: bytes, token: str, trace_id: str) -> dict[str, Any]:
        """Answer the body of one evaluation."""
        return await self._answer(read_evaluation(payload), _own_names(token))

    async def many(self, payload: bytes, token: str, trace_id: str) -> dict[str, Any]:
        """Answer the body of many, in their order; what follows an answer that ends them is not asked."""
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
        turns = asyncio.Semaphore(AT_ONCE)

        async def answer(entry: Evaluation | Unaskable) -> dict[str, Any]:
            async with turns:
                return await self._entry(entry, own, trace_id)

        asking = [asyncio.ensure_future(answer(entry)) for entry in asked.entries]
        try:
            # Gathered rather than grouped: the first failure is raised as it is.
            return await asyncio.gather(*asking)
        finally:
            # It ends the rest, which nobody waits for any more.
            for each in asking:
                each.cancel()

    async def _entry(self, entry: Evaluation | Unaskable, own: frozenset[str], trace_id: str) -> dict[str, Any]:
        if isinstance(entry, Unaskable):
            return failed(entry.error, trace_id)
        try:
            return await self._answer(entry, own)
        except MeshError as error:
            if error.row.grpc_status == _UNAUTHENTICATED:
                raise
            return failed(error, trace_id)

    async def _answer(self, evaluation: Evaluation, own: frozenset[str]) -> dict[str, Any]:
        if evaluation.resource["type"] != convert.RESOURCE or evaluation.action["name"] != convert.ACTION:
            words = f"Only the action {convert.ACTION} on resources of type {convert.RESOURCE} is known here."
            return answer_of(False, {"outcome": "deny", "reasons": [words]})
        try:
            resolved = await self._registry.ResolveTool(convert.resolve_request(evaluation))
            request = convert.check_request(evaluation, resolved.version, own)
            return convert.decision_json((await self._authz.Check(request)).decision)
        except grpc.aio.AioRpcError as failure:
            error = from_rpc_error(failure)
            if error.reason not in _NO_TOOL:
                raise error from None
            return answer_of(False, {"outcome": "deny", "reason": error.reason.name, "reasons": [error.message]})


def _own_names(token: str) -> frozenset[str]:
    """The names of whoever the token says it is. Authz believes it or refuses it; nothing is decided here."""
    try:
        claims = payload_of(token)
    except (MeshError, IndexError):
        return frozenset()
    return frozenset(name for name in (claims.get("agent") or claims.get("sub"),) if isinstance(name, str))
