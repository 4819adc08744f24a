"""Reads the questions of `toolmesh policy test`: a YAML file of made-up calls and expected outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from toolmesh_sdk.cli.inputs.timestamps import parse_time

if TYPE_CHECKING:
    from toolmesh.authz.v1 import policy_service_pb2 as policy_pb
    from toolmesh.authz.v1.authz_service_pb2 import CallFacts, SubjectFacts

OUTCOMES = ("allow", "deny", "needs_approval")
HINT = "CASES"
ToolFacts = Callable[[str], "CallFacts"]
"""Returns the facts of a tool that the mesh has."""

# Attributes of tools in policies, and the fields of the contract that carry them under another name.
_RENAMED = {
    "trust": "tool_trust",
    "trust_age_hours": "tool_trust_age_hours",
    "stage": "tool_stage",
    "health": "tool_health",
}
_ATTRIBUTES = frozenset(
    {"mutation_class", "required_scopes", "required_permissions", "tags", "approval_always", "impact_scope"}
    | {"closed_world", "publisher_verified", "result_labels", "risk", *_RENAMED}
)


@dataclass(frozen=True)
class PolicyCase:
    """One call that is made up. `facts` replace attributes of the tool, as policies name them."""

    tool: str
    subject: str
    name: str = ""
    agent: str = ""
    tenant: str = ""
    trust_level: int = 0
    groups: list[str] = field(default_factory=list)
    scopes: list[str] = field(default_factory=list)
    arguments: dict[str, Any] | None = None
    resources: list[str] = field(default_factory=list)
    session: str = ""
    labels: list[str] = field(default_factory=list)
    environment: str = ""
    time: str | datetime = ""
    wildcard: bool = False
    """Whether the token covers the tool only by `*`."""
    facts: dict[str, Any] = field(default_factory=dict)
    expect: str = ""
    by: str = ""
    """A policy that must determine the outcome."""

    def question(self, tool_facts: ToolFacts) -> policy_pb.PolicyQuestion:
        """Return the question. A tool whose `mutation_class` is given need not exist."""
        from toolmesh.authz.v1 import policy_service_pb2 as pb

        question = pb.PolicyQuestion(
            subject=self._subject(),
            call=self._call(tool_facts),
            session_labels=self.labels,
            environment=self.environment,
            granted_by_wildcard=self.wildcard,
        )
        if self.time:
            question.time.FromDatetime(self.time if isinstance(self.time, datetime) else parse_time(self.time))
        return question

    def _subject(self) -> SubjectFacts:
        from toolmesh.authz.v1 import authz_service_pb2 as pb

        return pb.SubjectFacts(
            subject=self.agent or self.subject,
            kind=pb.PRINCIPAL_KIND_AGENT if self.agent else pb.PRINCIPAL_KIND_USER,
            on_behalf_of=self.subject if self.agent else "",
            tenant=self.tenant,
            trust_level=self.trust_level,
            groups=self.groups,
            scopes=self.scopes,
        )

    def _call(self, tool_facts: ToolFacts) -> CallFacts:
        import json

        call = planned_tool(self.tool) if "mutation_class" in self.facts else tool_facts(self.tool)
        for name, value in self.facts.items():
            _set_fact(call, _RENAMED.get(name, name), value)
        if self.arguments is not None:
            call.arguments = json.dumps(self.arguments, ensure_ascii=False, allow_nan=False).encode()
        call.resources.extend(self.resources)
        call.session_id = self.session
        return call


def read_cases(path: Path) -> list[PolicyCase]:
    """Return the cases of a YAML file, of which JSON is a part. Refuses what it does not know, with the case."""
    import yaml

    try:
        document = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be read: {error.strerror}", param_hint=HINT) from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise typer.BadParameter(f"{path} is not YAML: {error}", param_hint=HINT) from None
    cases = document.get("cases") if isinstance(document, dict) else None
    if not isinstance(cases, list) or not cases or len(document) != 1:
        raise typer.BadParameter(f"{path} must hold `cases`, a list, and nothing else", param_hint=HINT)
    return [_case(each, number) for number, each in enumerate(cases, 1)]


def _case(values: Any, number: int) -> PolicyCase:
    label = f"case {number}"
    if not isinstance(values, dict):
        raise typer.BadParameter(f"{label} is not a mapping", param_hint=HINT)
    label += f" ({values['name']})" if isinstance(values.get("name"), str) else ""
    _refuse_unknown(label, values, {one.name for one in fields(PolicyCase)})
    for name in ("tool", "subject", "expect"):
        if not isinstance(values.get(name), str) or not values[name]:
            raise typer.BadParameter(f"{label}: `{name}` is required and a text", param_hint=HINT)
    if values["expect"] not in OUTCOMES:
        raise typer.BadParameter(f"{label}: `expect` is one of {', '.join(OUTCOMES)}", param_hint=HINT)
    case = PolicyCase(**values)
    check_facts(label, case.facts, HINT)
    return case


def check_facts(label: str, facts: Any, hint: str) -> None:
    """Refuse facts that no policy can read."""
    if not isinstance(facts, dict):
        raise typer.BadParameter(f"{label}: `facts` is not a mapping", param_hint=hint)
    _refuse_unknown(f"{label}: facts", facts, _ATTRIBUTES, hint)


def questions_of(
    cases: Iterable[PolicyCase], tool_facts: ToolFacts, hint: str = HINT
) -> list[policy_pb.PolicyQuestion]:
    """Return the questions of the cases. Refuses values of a wrong type, with the case."""
    questions = []
    for number, case in enumerate(cases, 1):
        try:
            questions.append(case.question(tool_facts))
        except (TypeError, ValueError, AttributeError) as error:
            label = f"case {number}{f' ({case.name})' if case.name else ''}"
            raise typer.BadParameter(f"{label}: {error}", param_hint=hint) from None
    return questions


def planned_tool(name: str) -> CallFacts:
    """Return the facts of a tool that need not exist: NAME or NAME@VERSION."""
    from toolmesh.authz.v1.authz_service_pb2 import CallFacts

    tool, _, version = name.partition("@")
    qualified = tool if "." in tool else f"core.{tool}"
    return CallFacts(tool_version=f"tools/{qualified}/versions/{version or '1.0.0'}", tool_digest="sha256:planned")


def _set_fact(call: CallFacts, name: str, value: Any) -> None:
    call.ClearField(name)  # type: ignore[arg-type]
    if isinstance(value, list):
        getattr(call, name).extend(value)
    elif isinstance(value, Mapping):
        getattr(call, name).update(value)
    else:
        setattr(call, name, value)


def _refuse_unknown(label: str, values: Mapping[Any, Any], known: Iterable[str], hint: str = HINT) -> None:
    if unknown := sorted(str(name) for name in values.keys() - set(known)):
        names = ", ".join(sorted(known))
        raise typer.BadParameter(f"{label}: {', '.join(unknown)} is not known; there are {names}", param_hint=hint)
