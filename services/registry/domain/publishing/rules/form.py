"""Admission rules for the manifest as a whole: size, text, names, JSON Pointers and audit detail."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from libs.common.errors import MeshError, Violation
from libs.common.json.json_pointer import pointer_of
from libs.common.semver import MAX_DIGITS
from services.registry.domain.catalog.page_size import MANIFEST_BYTES
from services.registry.domain.publishing.manifest import Manifest

# Limited to the maximum nesting of values.
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*){1,64}")
_TAIL = re.compile(r"[-+]")
_SHORTEST_NAME = 3


def check_size(manifest: Manifest) -> Iterator[Violation]:
    """Limit the size, so that every version fits into one message with others."""
    if len(manifest.payload) > MANIFEST_BYTES:
        yield Violation("manifest", "manifest.size", f"has more than {MANIFEST_BYTES} bytes as a document")


def forbid_null_characters(manifest: Manifest) -> Iterator[Violation]:
    """Forbid the null character, which databases and tools do not store."""
    for path in _nulls(manifest.document, "manifest"):
        yield Violation(path, "text.no_null", "holds the null character")


def check_version(manifest: Manifest) -> Iterator[Violation]:
    """Require bounded numbers and valid identifiers, so that no two texts mean the same version."""
    core = _TAIL.split(manifest.text("version"), maxsplit=1)[0]
    if any(len(number) > MAX_DIGITS for number in core.split(".")):
        yield Violation("manifest.version", "version.numbers", "has a number of more than ten digits")
        return
    try:
        _ = manifest.version
    except MeshError:
        message = "has an identifier that is empty, or a number with a leading zero"
        yield Violation("manifest.version", "version.identifier", message)


def check_aliases(manifest: Manifest) -> Iterator[Violation]:
    """Require aliases to have the form of a tool id, so that references can use them."""
    for index, alias in enumerate(manifest.items("aliases")):
        if len(alias) < _SHORTEST_NAME:
            yield Violation(f"manifest.aliases[{index}]", "alias.length", "has less than three characters")


def check_json_pointers(manifest: Manifest) -> Iterator[Violation]:
    """Require valid JSON Pointers: an invalid one matches nothing, and the field would stay unprotected."""
    lists = {
        "manifest.input.sensitive_fields": manifest.input.get("sensitive_fields", ()),
        "manifest.input.internal_only_fields": manifest.input.get("internal_only_fields", ()),
        "manifest.output.sensitive_fields": manifest.output.get("sensitive_fields", ()),
        "manifest.interface.safety.classifier_input": manifest.safety.get("classifier_input", ()),
    }
    pointers = {f"{path}[{i}]": text for path, texts in lists.items() for i, text in enumerate(texts)}
    for index, matcher in enumerate(manifest.part("interface").get("permission_matchers", ())):
        if matcher.get("argument_pointer"):
            path = f"manifest.interface.permission_matchers[{index}].argument_pointer"
            pointers[path] = matcher["argument_pointer"]
    for path, pointer in pointers.items():
        if not _POINTER.fullmatch(pointer):
            yield Violation(path, "pointer.form", "is not a JSON Pointer to a field")


def require_audit_detail(manifest: Manifest) -> Iterator[Violation]:
    """Require an explicit audit detail."""
    if "audit_detail" not in manifest.part("observability"):
        yield Violation("manifest.observability.audit_detail", "observability.required", "is required for every tool")


def _nulls(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, str) and "\0" in value:
        yield path
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _nulls(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        if any("\0" in key for key in value):
            yield path
        for key, item in value.items():
            yield from _nulls(item, f"{path}.{pointer_of([key])[1:]}")
