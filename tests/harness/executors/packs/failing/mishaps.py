"""Functions that go wrong, each in one way, and one that does not."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from toolmesh_tool import Call, ToolFailure, connect

_NOTES = Path("/volumes/notes")


def fine(arguments: dict[str, Any], call: Call) -> dict[str, Any]:
    """Do nothing, and do it well."""
    return {"done": True}


def breaks_its_schema(arguments: dict[str, Any], call: Call) -> Any:
    """Return what its manifest does not promise."""
    return {"done": "perhaps"}


def long_letter(arguments: dict[str, Any], call: Call) -> dict[str, Any]:
    """Write as much as the arguments say."""
    return {"letter": "x" * arguments["characters"]}


def fails(arguments: dict[str, Any], call: Call) -> NoReturn:
    """Fail in words; after a part of the work, if the arguments say so."""
    raise ToolFailure("the shop is closed", partial=arguments.get("partial", False))


def raises(arguments: dict[str, Any], call: Call) -> NoReturn:
    """Fail unexpectedly."""
    raise ValueError("the text of an exception is for the log")


def waits(arguments: dict[str, Any], call: Call) -> NoReturn:
    """Never end by itself."""
    while True:
        signal.pause()


def devours(arguments: dict[str, Any], call: Call) -> NoReturn:
    """Take memory until it ends."""
    taken = []
    while True:
        taken.append(bytearray(b"x" * (4 << 20)))


def leaves(arguments: dict[str, Any], call: Call) -> NoReturn:
    """End the process that should answer."""
    os._exit(0)


def calls_out(arguments: dict[str, Any], call: Call) -> dict[str, Any]:
    """Try a host, and say that all is well whatever comes of it."""
    try:
        connect(arguments["host"], 443, timeout=5).close()
    except OSError:
        return {"done": True}
    return {"done": True}


def stutters(arguments: dict[str, Any], call: Call) -> Iterator[int]:
    """Fail after a first part."""
    yield 1
    raise ValueError("the second part")


def writes(arguments: dict[str, Any], call: Call) -> dict[str, Any]:
    """Write files of one MiB into the volume, one unless the arguments say how many."""
    for nth in range(arguments.get("files", 1)):
        (_NOTES / f"{arguments['name']}-{nth}").write_bytes(b"x" * (1 << 20))
    return {"done": True}


def rewrites(arguments: dict[str, Any], call: Call) -> dict[str, Any]:
    """Replace one note, make another, and say so; a part of it costs something."""
    print(f"rewrites {arguments['name']}")  # noqa: T201
    (_NOTES / arguments["name"]).write_text("new")
    (_NOTES / f"{arguments['name']}-made").write_text("made")
    call.cost("storage_io", 7)
    call.log("written for alice@example.com")
    return {"done": True}


def boasts(arguments: dict[str, Any], call: Call) -> dict[str, Any]:
    """Say that it changed something far away."""
    call.report_effect("order:1", "delete")
    return {"done": True}
