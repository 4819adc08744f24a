"""Parses the entry point of a manifest: a function of a pack, or a command. Pure.

Only paths inside the pack or directly below `/usr/bin` are accepted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from libs.common.errors import MeshError
from libs.common.json.jsonio import parse

_PACK = r"[a-z][a-z0-9_]{1,62}"
_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]{0,100}"
PACK_NAME = re.compile(_PACK)
_FUNCTION = re.compile(
    rf"(?P<pack>{_PACK})/(?P<module>{_IDENTIFIER}(?:\.{_IDENTIFIER}){{0,8}}):(?P<function>{_IDENTIFIER})"
)
_STEP = r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,100}"
PROGRAM_PATH = re.compile(rf"{_STEP}(?:/{_STEP}){{0,8}}")
_PACK_PROGRAM = re.compile(rf"pack:(?P<pack>{_PACK})/(?P<path>{_STEP}(?:/{_STEP}){{0,8}})")
_SYSTEM_PROGRAM = re.compile(rf"/usr/bin/{_STEP}")
_MAX_ELEMENTS = 128
# Programs that execute their arguments would defeat the protection of an argument vector.
_SHELLS = frozenset({"sh", "ash", "bash", "busybox", "dash", "env", "fish", "ksh", "script", "xargs", "zsh"})
_PLACEHOLDER = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}")
# The text around a placeholder may be part of an option or a path, never source code.
_LITERAL_TEXT = re.compile(r"[A-Za-z0-9_./=:@,+%{}-]*")


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a module of a pack."""

    pack: str
    module: str
    function: str


@dataclass(frozen=True, slots=True)
class Command:
    """A program and the templates of its arguments."""

    program: str
    """A path below /usr/bin, or inside the pack."""
    templates: tuple[str, ...]
    pack: str = ""


def parse_function(entry_point: str) -> Function | None:
    """Parse `pack/module:function`; return None for any other form."""
    match = _FUNCTION.fullmatch(entry_point)
    return None if match is None else Function(match["pack"], match["module"], match["function"])


def parse_command(entry_point: str) -> Command | None:
    """Parse a JSON array of a program and its argument templates; return None for any other form."""
    try:
        elements = parse(entry_point.encode())
    except (MeshError, UnicodeEncodeError):
        return None
    if not isinstance(elements, list) or not 1 <= len(elements) <= _MAX_ELEMENTS:
        return None
    if any(not isinstance(element, str) or "\0" in element or not _is_plain(element) for element in elements):
        return None
    program, templates = elements[0], tuple(elements[1:])
    if match := _PACK_PROGRAM.fullmatch(program):
        return Command(match["path"], templates, pack=match["pack"])
    if not _SYSTEM_PROGRAM.fullmatch(program) or program.rpartition("/")[2] in _SHELLS:
        return None
    return Command(program, templates)


def _is_plain(element: str) -> bool:
    literal, placeholders = _PLACEHOLDER.subn("", element)
    return not placeholders or bool(_LITERAL_TEXT.fullmatch(literal))
