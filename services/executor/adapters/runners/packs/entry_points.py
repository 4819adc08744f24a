"""What an entry point of a manifest names: a function of a pack, or a command. Pure.

A name that could lead anywhere but into its pack or under `/usr/bin` has no form here at all.
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
_MOST_ELEMENTS = 128
# Whoever reads its arguments as a program of its own would undo what an argument vector is good for.
_SHELLS = frozenset({"sh", "ash", "bash", "busybox", "dash", "env", "fish", "ksh", "script", "xargs", "zsh"})
_PLACEHOLDER = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}")
# What may stand beside a placeholder: the beginning of an option or a path, never a line of some language.
_BESIDE = re.compile(r"[A-Za-z0-9_./=:@,+%{}-]*")


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
    """A path under /usr/bin, or inside the pack."""
    templates: tuple[str, ...]
    pack: str = ""


def function_of(entry_point: str) -> Function | None:
    """Read `pack/module:function`; None for anything else."""
    found = _FUNCTION.fullmatch(entry_point)
    return None if found is None else Function(found["pack"], found["module"], found["function"])


def command_of(entry_point: str) -> Command | None:
    """Read a JSON array of a program and its arguments; None for anything else."""
    try:
        elements = parse(entry_point.encode())
    except (MeshError, UnicodeEncodeError):
        return None
    if not isinstance(elements, list) or not 1 <= len(elements) <= _MOST_ELEMENTS:
        return None
    if any(not isinstance(element, str) or "\0" in element or not _is_plain(element) for element in elements):
        return None
    program, templates = elements[0], tuple(elements[1:])
    if found := _PACK_PROGRAM.fullmatch(program):
        return Command(found["path"], templates, pack=found["pack"])
    if not _SYSTEM_PROGRAM.fullmatch(program) or program.rpartition("/")[2] in _SHELLS:
        return None
    return Command(program, templates)


def _is_plain(element: str) -> bool:
    beside, placeholders = _PLACEHOLDER.subn("", element)
    return not placeholders or bool(_BESIDE.fullmatch(beside))
