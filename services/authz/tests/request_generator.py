"""Generates random token requests and attenuations: mostly subsets of the parent, sometimes more."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from libs.common.auth.identity import ArgumentConstraint, Budget, Grant, Identity
from libs.common.semver import Version
from libs.common.tool_names import ToolName
from services.authz.domain.model import Attenuation, TokenRequest
from services.authz.tests.token_issuer import ALICE

T = TypeVar("T")
# Small alphabets, so that patterns, ranges and calls often meet.
PATTERNS = ["*", "*.*", "core.*", "ab.*", "a*.aab", "aa*", "a*b", "*ab", "aab", "ab.aab", "*.a*b", "a*b*"]
RANGES = ["", "", "*", "^1", "~1.1", "1.1.0", ">=1 <2", ">1.0", "<=1.1", "^0.1", "1.0 - 1.1", "^1 || ^2", "1.1.0-rc.1"]
RESOURCES = ["f:*", "f:a*", "f:a/*", "f:a/b", "f:*b", "*", "g:*"]
SCHEMAS: list[dict[str, Any]] = [
    {},
    {"required": ["n"]},
    {"maxProperties": 1},
    {"properties": {"s": {"enum": ["a", "b"]}}},
    *({"properties": {"n": {"maximum": n}}} for n in range(4)),
]
PROOFS = ["jkt:" + "a" * 43, "x5t#S256:" + "b" * 43]


@dataclass(frozen=True)
class Call:
    """A random call, `offset` seconds after the start."""

    tool: ToolName
    version: Version
    arguments: dict[str, Any]
    resources: list[str]
    closed_world: bool
    offset: int


class RequestGenerator:
    """Generates requests from one random source."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.below, self._one = random.randrange, random.choice

    def chance(self, share: float) -> bool:
        """Return True with this probability."""
        return self._random.random() < share

    def root(self) -> TokenRequest:
        """Generate a request for a root token."""
        return TokenRequest(
            subject=ALICE,
            tools=tuple(self._grant() for _ in range(1 + self.below(3))),
            scopes=self._some("rwx"),
            lifetime=self._maybe(1 + self.below(300)),
            tenant=self._one(["", "t"]),
            groups=self._some("gh"),
            trust_level=self.below(4),
            audiences=self._some(["toolmesh", "other"]),
            resources=self._some(RESOURCES, most=2) if self.chance(0.5) else (),
            argument_constraints=self._constraints(),
            budget=Budget(*(self._maybe(self.below(4)) for _ in range(3))),
            depth=1 + self.below(8),
            confirmation=self._one(PROOFS) if self.chance(0.2) else "",
            session_id="s1" if self.chance(0.2) else "",
        )

    def attenuation(self, parent: Identity, *, narrow: bool) -> Attenuation:
        """Generate an attenuation: each dimension is unset, smaller than the parent's, or random."""
        return Attenuation(
            tools=self._tools(parent, narrow=narrow),
            scopes=self._choose((), self._some(sorted(parent.scopes)), self._some("rwx")),
            resources=self._choose((), self._some(parent.resources), self._some(RESOURCES, most=2)),
            argument_constraints=self._constraints() if self.chance(0.3) else (),
            budget=self._choose(Budget(), self._smaller(parent.budget), Budget(self.below(4), self.below(4))),
            lifetime=self._choose(None, 1 + self.below(30), 1 + self.below(400)),
            audiences=self._choose((), self._some(parent.audiences), ("toolmesh", "other")),
            groups=self._choose((), self._some(parent.groups), self._some("gh")),
            trust_level=self._choose(None, self.below(parent.trust_level + 1), self.below(4)),
            session_id=self._choose("", parent.session_id, "s2"),
            confirmation=self._one(PROOFS) if parent.confirmation and self.chance(0.9) else "",
        )

    def depth(self, parent: Identity) -> int | None:
        """Generate a delegation depth."""
        return self._choose(None, self.below(max(parent.depth, 1)), self.below(9))

    def calls(self, holder: Identity) -> list[Call]:
        """Generate calls, most of them to granted tools."""
        return [self._call(holder) for _ in range(6)]

    def _call(self, holder: Identity) -> Call:
        pattern = self._one(holder.tools).tool if holder.tools and self.chance(0.8) else self._one(PATTERNS)
        namespace, _, tool_id = ("*.*" if pattern == "*" else pattern).rpartition(".")
        return Call(
            tool=ToolName(self._filled(namespace or "core"), self._filled(tool_id)),
            version=Version(self.below(3), self.below(3), self.below(2), ("rc", "1") if self.chance(0.2) else ()),
            arguments={name: self._one([0, 1, 3, "a", "c"]) for name in self._some("ns")},
            resources=[self._one(["f:a", "f:a/b", "f:b", "g:a", "f:a/../b", "f:ab"]) for _ in range(self.below(3))],
            closed_world=self.chance(0.5),
            offset=self.below(400) - 10 if self.chance(0.3) else self.below(20),
        )

    def _tools(self, parent: Identity, *, narrow: bool) -> tuple[Grant, ...]:
        if narrow:
            return (Grant(self._one(["aab", "abb", "ab.aab"]), self._one(RANGES)),)
        known = tuple(self._smaller_grant(grant) for grant in self._some(parent.tools))
        return self._choose((), known, (self._grant(),))

    def _smaller_grant(self, grant: Grant) -> Grant:
        namespace, dot, tool_id = grant.tool.rpartition(".")
        tool = namespace + dot + (tool_id.replace("*", self._one(["*", "a*", "ab", "b*a*"]), 1) if dot else tool_id)
        tools = [grant.tool, tool if len(tool_id) > 2 or "*" in tool else grant.tool]
        version = self._one([grant.version_constraint, "1.1.0", "~1.1", self._one(RANGES)])
        return Grant(self._one(tools), version)

    def _grant(self) -> Grant:
        return Grant(self._one(PATTERNS), self._one(RANGES))

    def _constraints(self) -> tuple[ArgumentConstraint, ...]:
        return tuple(
            ArgumentConstraint(self._one(PATTERNS), json.dumps(self._one(SCHEMAS)).encode())
            for _ in range(self.below(3))
        )

    def _smaller(self, budget: Budget) -> Budget:
        return Budget(
            *(
                None if bound is None or self.chance(0.5) else self.below(bound + 1)
                for bound in (budget.calls, budget.cost_micros, budget.running_ms)
            )
        )

    def _filled(self, pattern: str) -> str:
        return "".join(self._one(["", "a", "b", "ab"]) if letter == "*" else letter for letter in pattern) or "a"

    def _some(self, choices: Any, most: int | None = None) -> tuple[Any, ...]:
        return tuple(self._random.sample(list(choices), self.below(min(len(choices), most or 99) + 1)))

    def _maybe(self, value: T) -> T | None:
        return value if self.chance(0.5) else None

    def _choose(self, unset: Any, smaller: Any, random: Any) -> Any:
        drawn = self._random.random()
        return unset if drawn < 0.55 else smaller if drawn < 0.93 else random
