"""What stands between a decision and the run that it allows."""

from __future__ import annotations

from typing import Any

from libs.common.auth.coverage import Refusal, Satisfies, not_covered
from libs.common.auth.identity import Identity
from libs.common.errors import MeshError
from libs.common.semver import Version
from libs.common.tool_names import split_version_name
from services.executor.domain import errors
from services.executor.domain.model import Caller, Decision, Verdict
from services.executor.domain.results.obligations import unmet
from services.executor.domain.states import State
from services.executor.domain.tool import Tool


def refusal_of(
    decision: Decision, tool: Tool, caller: Caller, arguments: dict[str, Any], satisfies: Satisfies, sandbox: str = ""
) -> tuple[MeshError, State] | None:
    """Return why the call may not run and the state that it ends in; None if it may."""
    if decision.verdict is Verdict.NEEDS_APPROVAL:
        return errors.approval_required(decision), State.AWAITING_APPROVAL
    if decision.verdict is not Verdict.ALLOW:
        return errors.denied(decision), State.DENIED
    if decision.obligations and (kinds := unmet(decision.obligations, tool, sandbox)):
        return errors.obligation_unmet(decision, kinds), State.DENIED
    if caller.confined is not None:
        # The decision may be remembered from other arguments; what the token says about arguments holds for these.
        refused = beyond_token(caller.confined, tool, arguments, satisfies)
        if refused is not None:
            return errors.authority_exceeded(decision, refused), State.DENIED
    return None


def beyond_token(token: Identity, tool: Tool, arguments: dict[str, Any], satisfies: Satisfies) -> Refusal | None:
    """Return why the token does not cover a call with these arguments, or None if it does."""
    name, version = split_version_name(tool.name)
    return not_covered(
        token,
        name,
        Version.parse(version),
        arguments=arguments,
        resources=() if tool.resources is None else tool.resources(arguments),
        closed_world=tool.closed_world,
        satisfies=satisfies,
    )
