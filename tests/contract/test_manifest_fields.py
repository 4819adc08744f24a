"""Every field of a manifest is read by the mesh, describes the tool, or is refused at admission."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import Descriptor
from toolmesh.registry.v1.tool_manifest_pb2 import ToolManifest

from services.registry.domain.publishing.rules.honoured import DESCRIPTIVE, UNHONOURED

ROOT = Path(__file__).resolve().parents[2]
READERS = ("services/executor", "services/registry", "libs/authz_client")
# These name fields without acting on them: the comparison of versions, the table itself, and the authors of manifests.
# Read elsewhere: by a rule of the contract, and by the comparison of versions, which acts on the author's word.
READ_ELSEWHERE = {"schema_version", "breaking_changes"}
NOT_READERS = ("contract_diff.py", "rules/honoured.py", "executor/builtin/", "/tests/", "/migrations/")


def paths(message: Descriptor, prefix: str = "") -> Iterator[str]:
    """Yield the path of every field; fields of a described or refused message are not of interest."""
    for field in message.fields:
        path = prefix + field.name
        inner: Any = field.message_type
        listed = path in DESCRIPTIVE or path in UNHONOURED
        if inner is None or listed or inner.full_name.startswith("google.") or inner.GetOptions().map_entry:
            yield path
        else:
            yield from paths(inner, f"{path}.")


@cache
def names_that_are_read() -> frozenset[str]:
    """Return every attribute and every string in the code of the services that read manifests."""
    names = set[str]()
    for folder in READERS:
        for file in (ROOT / folder).rglob("*.py"):
            if not any(part in str(file) for part in NOT_READERS):
                for node in ast.walk(ast.parse(file.read_bytes())):
                    if isinstance(node, ast.Attribute):
                        names.add(node.attr)
                    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                        names.add(node.value)
    return frozenset(names)


def test_every_field_is_read_described_or_refused() -> None:
    unread = [
        path
        for path in paths(ToolManifest.DESCRIPTOR)
        if path not in DESCRIPTIVE | UNHONOURED.keys() | READ_ELSEWHERE
        and path.rpartition(".")[2] not in names_that_are_read()
    ]
    assert unread == []


def test_no_field_is_listed_that_does_not_exist() -> None:
    assert DESCRIPTIVE | UNHONOURED.keys() <= set(paths(ToolManifest.DESCRIPTOR))


def test_the_docs_name_every_field_that_is_not_honoured() -> None:
    text = (ROOT / "docs/manifests.md").read_text()
    assert [field for field in [*UNHONOURED, *sorted(DESCRIPTIVE)] if f"`{field}`" not in text] == []


def test_no_example_uses_what_is_refused() -> None:
    for file in (ROOT / "examples").rglob("manifests/*.json"):
        document = json.loads(file.read_text())
        for field in UNHONOURED:
            part, _, name = field.partition(".")
            value = document.get(part, {})
            assert not isinstance(value, dict) or value.get(name) in (None, *UNHONOURED[field]), (file.name, field)
