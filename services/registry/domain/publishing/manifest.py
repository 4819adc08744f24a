"""The manifest as the domain reads it: a plain JSON document with typed views of the parts that decide something.

The document has the field names of the contract. Schemas, examples and other embedded JSON are parsed values, enums are
lower-case words without their prefix, durations are seconds as text (`"2.500s"`), integers are JSON integers, and
whatever has its default is absent.
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
    """What a tool does to the world."""

    READ_ONLY = "read_only"
    WRITE_REVERSIBLE = "write_reversible"
    WRITE_IRREVERSIBLE = "write_irreversible"


@dataclass(frozen=True, slots=True)
class Example:
    """One call that a manifest shows; `has_result` tells a result of null from none."""

    arguments: JsonValue
    has_result: bool
    result: JsonValue = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything a tool promises. Nobody changes the document once it is in here."""

    document: Document

    @property
    def digest(self) -> str:
        """Pins the content: equal for manifests that differ only in how their JSON is written."""
        return digest(self.document)

    @property
    def payload(self) -> bytes:
        """The document as JSON, with embedded schemas in the order their author wrote them."""
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
        """The other names that lead to the tool; all within its own namespace."""
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
        found: Document = self.part("interface").get("safety", {})
        return found

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
        """Return a text of the manifest itself; empty when unsaid."""
        return str(self.document.get(field, ""))

    def items(self, field: str) -> Sequence[Any]:
        """Return a list of the manifest itself; empty when unsaid."""
        found: Sequence[Any] = self.document.get(field, ())
        return found

    def part(self, field: str) -> Document:
        """Return a nested part; empty when unsaid."""
        found: Document = self.document.get(field, {})
        return found


def seconds(duration: str) -> Decimal:
    """Read a duration of a document, exactly."""
    return Decimal(duration.removesuffix("s"))
