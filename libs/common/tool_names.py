"""Resource names of tools (AIP-122)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from libs.common.errors import MeshError, Reason
from libs.common.json.globs import ANY, covers, matches

DEFAULT_NAMESPACE = "core"
_PATTERN = re.compile(r"([a-z*][a-z0-9*-]*\.)?[a-z*][a-z0-9_*]*")
_LONGEST_PATTERN = 320
_REFERENCE = re.compile(r"(?:tools/)?(?:([a-z][a-z0-9-]{1,62})\.)?([a-z][a-z0-9_]{2,254})")
_VERSION_NAME = re.compile(r"tools/([a-z][a-z0-9-]*)\.([a-z][a-z0-9_]*)/versions/([0-9A-Za-z.+-]+)")


@dataclass(frozen=True, slots=True)
class ToolName:
    """The identity of a tool: a namespace and an id within it."""

    namespace: str
    tool_id: str

    @classmethod
    def parse(cls, reference: str) -> ToolName:
        """Parse `echo`, `acme.send_email` or `tools/acme.send_email`; anything else raises TOOL_NOT_FOUND."""
        match = _REFERENCE.fullmatch(reference)
        if match is None:
            raise MeshError(Reason.TOOL_NOT_FOUND, metadata={"tool": reference[:320]})
        return cls(match.group(1) or DEFAULT_NAMESPACE, match.group(2))

    @property
    def qualified(self) -> str:
        """`acme.send_email`: unambiguous everywhere."""
        return f"{self.namespace}.{self.tool_id}"

    @property
    def resource(self) -> str:
        """`tools/acme.send_email`."""
        return f"tools/{self.qualified}"

    def version(self, version: str) -> str:
        """`tools/acme.send_email/versions/1.2.3`."""
        return f"{self.resource}/versions/{version}"


def split_version_name(name: str) -> tuple[ToolName, str]:
    """Parse a version's resource name; anything else raises INVALID_REQUEST."""
    match = _VERSION_NAME.fullmatch(name)
    if match is None:
        raise MeshError(Reason.INVALID_REQUEST, message="not the resource name of a tool version")
    return ToolName(match.group(1), match.group(2)), match.group(3)


def is_pattern(text: str) -> bool:
    """Return whether a text is a tool pattern, with or without wildcards."""
    return len(text) <= _LONGEST_PATTERN and _PATTERN.fullmatch(text) is not None


def grant_covers(pattern: str, tool: ToolName) -> bool:
    """Return whether a grant such as `arith*`, `acme.*` or `*` covers the tool. Without a namespace it means `core`."""
    namespace, tool_id = _parts(pattern)
    return matches(namespace, tool.namespace) and matches(tool_id, tool.tool_id)


def grant_names(pattern: str, tool: ToolName) -> bool:
    """Return whether a grant covers the tool and names its namespace, at least in part: `acme.*` does, `*` does not."""
    return bool(_parts(pattern)[0].strip("*")) and grant_covers(pattern, tool)


def grant_within(pattern: str, outer: str) -> bool:
    """Return whether the outer grant covers every tool of the inner; False may mean that it cannot be shown."""
    (namespace, tool_id), (outer_namespace, outer_id) = _parts(pattern), _parts(outer)
    return covers(outer_namespace, namespace) and covers(outer_id, tool_id)


def qualified_pattern(pattern: str) -> str:
    """Return a grant with its namespace. Grants that mean the same by default have the same form."""
    return ".".join(_parts(pattern))


def _parts(pattern: str) -> tuple[str, str]:
    if pattern == ANY:
        return ANY, ANY
    namespace, _, tool_id = pattern.rpartition(".")
    return namespace or DEFAULT_NAMESPACE, tool_id
