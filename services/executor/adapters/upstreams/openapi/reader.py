"""The process that reads one OpenAPI document: JSON on its input, operations on its output.

A document of many megabytes takes seconds and hundreds of megabytes. Here they cost the executor neither its event loop
nor its memory: the process has limits of its own and ends with its work.
"""

from __future__ import annotations

import resource
import sys
from dataclasses import asdict
from typing import Any, BinaryIO

import msgspec

from libs.common.errors import MeshError
from libs.common.json.jsonio import parse
from services.executor.domain.openapi.operations import (
    ApiDescription,
    DocumentProblemError,
    Selection,
    describe_api,
)

MAX_DOCUMENT_BYTES = 32 * 1024 * 1024
_MAX_DEPTH = 200
MEMORY_BYTES, CPU_SECONDS = 2 << 30, 60


class Answer(msgspec.Struct):
    """What the process answers: the operations, or the reason why there are none."""

    api: ApiDescription | None = None
    problem: str = ""


def read_document(payload: bytes, selection: Selection) -> Answer:
    """Return the operations of a document."""
    try:
        document = parse(payload, max_bytes=MAX_DOCUMENT_BYTES, max_depth=_MAX_DEPTH)
        return Answer(describe_api(document, selection))
    except DocumentProblemError as problem:
        return Answer(problem=str(problem))
    except MeshError:
        return Answer(problem="the document is not strict JSON")
    except RecursionError:
        return Answer(problem="the document is nested too deeply")


def selection_argument(selection: Selection) -> str:
    """Return a selection as the argument of the process."""
    return msgspec.json.encode(asdict(selection)).decode()


def main(arguments: list[str], source: BinaryIO, destination: BinaryIO) -> int:
    """Read a document of the input and write an Answer."""
    for limit, most in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_CPU, CPU_SECONDS)):
        resource.setrlimit(limit, (most, most))
    selection = msgspec.json.decode(arguments[0], type=Selection)
    try:
        answer = read_document(source.read(MAX_DOCUMENT_BYTES + 1), selection)
        encoded: Any = msgspec.json.encode(answer)
    except MemoryError:
        encoded = msgspec.json.encode(Answer(problem="the document needs too much memory"))
    destination.write(encoded)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], sys.stdin.buffer, sys.stdout.buffer))
