"""Resolves the references of an OpenAPI document, within the document and bounded. Pure."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

MAX_DEPTH = 16


class OperationProblemError(Exception):
    """An operation cannot be offered. The text says why, in words of ours."""


def resolve(document: dict[str, Any], node: Any) -> dict[str, Any]:
    """Return an object of the document with its references followed. Raises OperationProblemError."""
    for _ in range(MAX_DEPTH):
        if not isinstance(node, dict):
            raise OperationProblemError("refers to something that is not an object")
        if not isinstance(node.get("$ref"), str):
            return node
        node = find(document, node["$ref"])
    raise OperationProblemError(f"follows more than {MAX_DEPTH} references in a row")


def find(document: dict[str, Any], reference: str) -> Any:
    """Return the part of the document that a reference names. Raises OperationProblemError."""
    if not reference.startswith("#/"):
        raise OperationProblemError("refers outside the document, which is not followed")
    part: Any = document
    for step in reference[2:].split("/"):
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(part, list) and name.isdigit() and int(name) < len(part):
            part = part[int(name)]
        elif isinstance(part, dict) and name in part:
            part = part[name]
        else:
            raise OperationProblemError("refers to something that the document does not have")
    return part
