"""Writes and reads the claims of a capability token.

Reading trusts the signature and nothing else. Every claim has a type and a bound, and a derived token is checked
against each of its ancestors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, TypeVar

import orjson

from libs.common.auth.authority import AGENT, INVOCATION, USER, ArgumentConstraint, Authority, Budget, Grant, exceeded
from libs.common.auth.identity import Ancestor, Identity
from libs.common.errors import MeshError, Reason
from libs.common.json.canonical import canonical
from libs.common.semver import Constraint
from libs.common.tool_names import is_pattern

MAX_CHAIN = 8
MAX_GRANTS, MAX_SCOPES, MAX_GROUPS, MAX_RESOURCES, MAX_CONSTRAINTS, MAX_AUDIENCES = 256, 64, 64, 64, 32, 8
# One constraint, and all of a token: no more fits into one.
MAX_CONSTRAINT_BYTES, MAX_ALL_CONSTRAINTS_BYTES = 8_192, 12_288
# The cost of all constraints of a token together, so that their number does not multiply the bound of each.
MAX_CONSTRAINTS_COST = 10_000
_DID = re.compile(r"did:[a-z0-9]+:[A-Za-z0-9._:%-]+")
_SCOPE = re.compile(r"[a-z][a-z0-9_.:-]*")
# Control characters: other readers end or break a text there.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_THUMBPRINT = re.compile(r"[A-Za-z0-9_-]{43}")
_PROOFS = ("jkt", "x5t#S256")
_TIERS = {USER, AGENT, INVOCATION}
T = TypeVar("T")


def claims_of(authority: Authority) -> dict[str, Any]:
    """Return an authority as claims. Empty claims are left out."""
    audiences = authority.audiences
    claims: dict[str, Any] = {
        "sub": authority.subject,
        "aud": audiences[0] if len(audiences) == 1 else list(audiences),
        "nbf": int(authority.not_before),
        "exp": int(authority.expires_at),
        "tier": authority.tier,
        "scope": " ".join(sorted(authority.scopes)),
        "tools": [{"tool": grant.tool, "version": grant.version_constraint} for grant in authority.tools],
        "tenant": authority.tenant,
        "groups": list(authority.groups),
        "trust": authority.trust_level,
        "depth": authority.depth,
    }
    proof, _, thumbprint = authority.confirmation.partition(":")
    spent = {name: getattr(authority.budget, name) for name in ("calls", "cost_micros", "running_ms")}
    further: dict[str, Any] = {
        "agent": authority.agent,
        "res": list(authority.resources),
        "args": [{"tool": c.tool, "schema": orjson.loads(c.schema)} for c in authority.argument_constraints],
        "budget": {name: bound for name, bound in spent.items() if bound is not None},
        "session": authority.session_id,
        "cnf": {proof: thumbprint} if proof else {},
    }
    return claims | {name: value for name, value in further.items() if value}


def descendants_claims(parent: Identity) -> dict[str, Any]:
    """Return `act` and `line` of a token that is derived from this one: all ancestors, and the parent itself."""
    before = parent.claims.get("line", [])
    entry = claims_of(parent.authority) | {"jti": parent.token_id, "iat": int(parent.issued_at), "kid": parent.key_id}
    chain = (*parent.chain, (parent.actor, parent.token_id))
    return {"act": [{"sub": sub, "jti": jti} for sub, jti in chain], "line": [*before, entry]}


def identity_of(claims: Mapping[str, Any], key_id: str = "") -> Identity:
    """Read verified claims.

    Raises TOKEN_MALFORMED for claims of the wrong shape or beyond their bounds, and AUTHORITY_EXCEEDED when a token of
    the chain exceeds its parent.
    """
    try:
        return _identity(claims, key_id)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise MeshError(Reason.TOKEN_MALFORMED) from error


def authority_of(claims: Mapping[str, Any]) -> Authority:
    """Read the authority of a token. Wrong shapes raise KeyError, TypeError or ValueError."""
    tier = claims.get("tier", USER)
    if tier not in _TIERS:
        raise ValueError("no such tier")
    return Authority(
        subject=_did(claims["sub"]),
        tier=tier,
        agent=_did(claims["agent"]) if claims.get("agent") else "",
        tools=_several(claims.get("tools", []), MAX_GRANTS, _grant),
        scopes=frozenset(_several(_text(claims.get("scope", ""), 16_384).split(), MAX_SCOPES, _scope)),
        resources=_several(claims.get("res", []), MAX_RESOURCES, lambda p: _text(p, 512, 1)),
        argument_constraints=_several(claims.get("args", []), MAX_CONSTRAINTS, _constraint),
        budget=_budget(claims.get("budget", {})),
        depth=_whole(claims.get("depth", 0), MAX_CHAIN),
        audiences=_audiences(claims["aud"]),
        not_before=_moment(claims.get("nbf", 0)),
        expires_at=_moment(claims["exp"]),
        tenant=_text(claims.get("tenant", ""), 128),
        trust_level=_whole(claims.get("trust", 0), 100),
        groups=_several(claims.get("groups", []), MAX_GROUPS, lambda g: _text(g, 128)),
        session_id=_text(claims.get("session", ""), 128),
        confirmation=_confirmation(claims.get("cnf", {})),
    )


def _identity(claims: Mapping[str, Any], key_id: str) -> Identity:
    authority = authority_of(claims)
    lineage = _several(claims.get("line", []), MAX_CHAIN, _ancestor)
    chain = _several(claims.get("act", []), MAX_CHAIN, lambda a: (_did(a["sub"]), _text(a["jti"], 128, 1)))
    if chain != tuple((ancestor.actor, ancestor.token_id) for ancestor in lineage):
        raise ValueError("the chain and the lineage differ")
    _refuse_growth(authority, lineage)
    return Identity(
        subject=authority.subject,
        token_id=_text(claims["jti"], 128, 1),
        expires_at=authority.expires_at,
        tier=authority.tier,
        agent=authority.agent,
        tenant=authority.tenant,
        scopes=authority.scopes,
        tools=authority.tools,
        groups=authority.groups,
        trust_level=authority.trust_level,
        chain=chain,
        session_id=authority.session_id,
        claims=dict(claims),
        audiences=authority.audiences,
        not_before=authority.not_before,
        issued_at=_moment(claims["iat"]),
        resources=authority.resources,
        argument_constraints=authority.argument_constraints,
        budget=authority.budget,
        depth=authority.depth,
        confirmation=authority.confirmation,
        key_id=key_id,
        lineage=lineage,
    )


def _refuse_growth(authority: Authority, lineage: tuple[Ancestor, ...]) -> None:
    steps = [*(ancestor.authority for ancestor in lineage), authority]
    if steps[0].tier != USER or steps[0].agent:
        raise ValueError("a chain begins with a user's own token")
    for place, (parent, child) in enumerate(pairwise(steps)):
        violations = exceeded(child, parent)
        if violations:
            raise MeshError(Reason.AUTHORITY_EXCEEDED, violations=violations, metadata={"chain_step": str(place + 1)})


def _ancestor(entry: Mapping[str, Any]) -> Ancestor:
    authority = authority_of(entry)
    return Ancestor(
        actor=authority.agent or authority.subject,
        token_id=_text(entry["jti"], 128, 1),
        key_id=_text(entry["kid"], 128),
        issued_at=_moment(entry["iat"]),
        authority=authority,
    )


def _grant(grant: Mapping[str, Any]) -> Grant:
    tool, version = _pattern(grant["tool"]), _text(grant.get("version", ""), 128)
    if version:
        _constraint_text(version)
    return Grant(tool, version)


def _pattern(value: Any) -> str:
    if not isinstance(value, str) or not is_pattern(value):
        raise ValueError("not a pattern of tools")
    return value


def _constraint_text(text: str) -> None:
    try:
        Constraint.parse(text)
    except MeshError:
        raise ValueError("not a version constraint") from None


def _constraint(constraint: Mapping[str, Any]) -> ArgumentConstraint:
    tool, schema = _pattern(constraint["tool"]), constraint["schema"]
    if not isinstance(schema, dict):
        raise ValueError("not a constraint")
    text = canonical(schema)
    if len(text) > MAX_CONSTRAINT_BYTES:
        raise ValueError("too large a constraint")
    return ArgumentConstraint(tool, text)


def _budget(budget: Mapping[str, Any]) -> Budget:
    bounds = {name: _whole(value, 2**63 - 1) for name, value in budget.items()}
    return Budget(**bounds)


def _confirmation(cnf: Mapping[str, Any]) -> str:
    if not cnf and isinstance(cnf, dict):
        return ""
    ((proof, thumbprint),) = cnf.items()
    if proof not in _PROOFS or not _THUMBPRINT.fullmatch(thumbprint):
        raise ValueError("not a confirmation")
    return f"{proof}:{thumbprint}"


def _audiences(aud: Any) -> tuple[str, ...]:
    named = _several([aud] if isinstance(aud, str) else aud, MAX_AUDIENCES, lambda a: _text(a, 255, 1))
    if not named:
        raise ValueError("no audience")
    return named


def _several(value: Any, most: int, read: Callable[[Any], T]) -> tuple[T, ...]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError("not a list, or too long")
    return tuple(read(item) for item in value)


def _text(value: Any, longest: int, shortest: int = 0) -> str:
    if not isinstance(value, str) or not shortest <= len(value) <= longest or _CONTROL.search(value):
        raise ValueError("not a text, of the wrong length, or with what no text of a token holds")
    return value


def _did(value: Any) -> str:
    if not _DID.fullmatch(_text(value, 512)):
        raise ValueError("not a DID")
    return str(value)


def _scope(value: str) -> str:
    if not _SCOPE.fullmatch(_text(value, 128)):
        raise ValueError("not a scope")
    return value


def _whole(value: Any, highest: int) -> int:
    if type(value) is not int or not 0 <= value <= highest:
        raise ValueError("not a whole number within bounds")
    return value


def _moment(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
        raise ValueError("not a time")
    return float(value)
