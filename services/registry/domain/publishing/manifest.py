"""The manifest in the domain: a plain JSON document with typed accessors.

The document has the field names of the contract. Schemas, examples and other embedded JSON are parsed values, enums are
lower-case words without their prefix, durations are seconds as text (`"2.500s"`), integers are JSON integers, and
fields with default values are absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

from libs.common.json.canonical import digest
from libs.common.json.jsonio import JsonValue, dump
from libs.common.semver import Version
from libs.common.tool_names import ToolName

Document = Mapping[str, Any]


class MutationClass(StrEnum):
    """The effect of a tool on external state."""

    READ_ONLY = "read_only"
    WRITE_REVERSIBLE = "write_reversible"
    WRITE_IRREVERSIBLE = "write_irreversible"


@dataclass(frozen=True, slots=True)
class Example:
    """An example call; `has_result` tells a null result from none."""

    arguments: JsonValue
    has_result: bool
    result: JsonValue = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contract of a tool version. The document is never modified."""

    document: Document

    @property
    def digest(self) -> str:
        """The digest of the canonical content, equal for documents that differ only in JSON formatting."""
        return digest(self.document)

    @property
    def payload(self) -> bytes:
        """The document as JSON, with embedded schemas in the order of their author."""
        return dump(self.document)

    @property
    def name(self) -> ToolName:
        return ToolName(self.text("namespace"), self.text("tool_id"))

    @property
    def version(self) -> Version:
        return Version.parse(self.text("version"))

    @property
    def provider(self) -> str:
        return self.text("provider")

    @property
    def title(self) -> str:
        return self.text("title")

    @property
    def aliases(self) -> tuple[ToolName, ...]:
        """The other names of the tool, all within its namespace."""
        names = (ToolName(self.name.namespace, alias) for alias in self.items("aliases"))
        return tuple(name for name in names if name != self.name)

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self.items("tags"))

    @property
    def input(self) -> Document:
        return self.part("input")

    @property
    def output(self) -> Document:
        return self.part("output")

    @property
    def execution(self) -> Document:
        return self.part("execution")

    @property
    def safety(self) -> Document:
        safety_claims: Document = self.part("interface").get("safety", {})
        return safety_claims

    @property
    def mutation_class(self) -> MutationClass:
        return MutationClass(self.text("mutation_class"))

    @property
    def mutates(self) -> bool:
        return self.mutation_class is not MutationClass.READ_ONLY

    @property
    def examples(self) -> tuple[Example, ...]:
        shown = self.input.get("examples", ())
        return tuple(Example(e.get("arguments"), "result" in e, e.get("result")) for e in shown)

    def text(self, field: str) -> str:
        """Return a text field; empty when unset."""
        return str(self.document.get(field, ""))

    def items(self, field: str) -> Sequence[Any]:
        """Return a list field; empty when unset."""
        values: Sequence[Any] = self.document.get(field, ())
        return values

    def part(self, field: str) -> Document:
        """Return a nested object; empty when unset."""
        nested: Document = self.document.get(field, {})
        return nested


def seconds(duration: str) -> Decimal:
    """Parse a duration of a document without rounding."""
    return Decimal(duration.removesuffix("s"))
