"""Checks paths, URLs and commands among the arguments for injection. Pure.

A value is accepted unchanged or the call is refused. Nothing is removed, escaped or repaired, because a repaired attack
may be another attack. The sandbox is the actual boundary; these checks refuse earlier and with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import unquote

from libs.common.errors import Violation
from libs.common.json.json_pointer import places, steps_of
from services.executor.domain.argument_spec import Rule
from services.executor.domain.arguments.hosts import NUMERIC_LABEL, Hosts
from services.executor.domain.tool import VOLUMES, Confinement

_LONGEST_PATH = 4096
_LONGEST_URL = 8192
_SEPARATORS = re.compile(r"[/\\]")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)")
_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?")
_PORTS = {"http": 80, "https": 443}
# URL parsers disagree about these characters, so a check and a request could see different hosts.
_UNCLEAR = re.compile(r"[\x00-\x20\x7f\\]")

Problem = tuple[str, str]
"""The violated rule, and its message."""


def policies_of(matchers: Sequence[tuple[str, str]], confinement: Confinement) -> tuple[Rule, ...]:
    """Return the policies of the arguments that a manifest declares as paths, URLs or commands."""
    volumes, hosts = frozenset((*confinement.reads, *confinement.writes)), Hosts(confinement.hosts)
    looks: dict[str, Callable[[Any], Problem | None]] = {
        "path": lambda value: path_problem(value, volumes),
        "url": lambda value: url_problem(value, hosts, confinement.ports),
    }
    rules = [_text_rule(pointer, looks[target]) for target, pointer in matchers if target in looks]
    return (*rules, *(_command_rule(pointer) for target, pointer in matchers if target == "command"))


def path_problem(path: Any, volumes: frozenset[str]) -> Problem | None:
    """Return what is wrong with a path. It must not leave its start, and start in a volume of the tool if absolute."""
    if not isinstance(path, str):
        return "path.form", "is not a text"
    if len(path) > _LONGEST_PATH:
        return "path.form", "is too long"
    # Also in its decoded form: a tool may use it as a part of a URL.
    forms = (path, unquote(path)) if "%" in path else (path,)
    if any("\0" in form for form in forms):
        return "path.form", "holds a NUL"
    if any(_leaves(form) for form in forms):
        return "path.leaves", "leads out of where it begins"
    if any(form.startswith(("/", "\\")) and not _in_volume(form, volumes) for form in forms):
        return "path.outside", "is outside of the tool's volumes"
    return None


def url_problem(url: Any, hosts: Hosts, ports: Sequence[int]) -> Problem | None:
    """Return what is wrong with a URL. It must name one of the tool's hosts, without credentials."""
    if not isinstance(url, str) or len(url) > _LONGEST_URL or _UNCLEAR.search(url):
        return "url.form", "is not a URL that every reader understands alike"
    match = _URL.match(url)
    if match is None:
        return "url.form", "is not an absolute URL"
    scheme, authority = match[1].lower(), match[2].lower()
    if scheme not in _PORTS:
        return "url.scheme", "is neither https nor http"
    if "@" in authority:
        return "url.login", "holds a login"
    host, colon, port = authority.partition(":")
    if "[" in authority or NUMERIC_LABEL.fullmatch(host.rpartition(".")[2]):
        return "url.address", "names an address instead of a host"
    if not _HOST.fullmatch(host) or (colon and not (port.isascii() and port.isdecimal() and len(port) <= 5)):
        return "url.form", "names no host that every reader understands alike"
    if host not in hosts:
        return "url.host", "is at a host that the tool may not reach"
    if (int(port) if port else _PORTS[scheme]) not in ports:
        return "url.port", "is at a port that the tool may not reach"
    return None


def command_problem(command: Any) -> Problem | None:
    """Return what is wrong with a command. It must be a list: splitting a text would take a shell."""
    if not isinstance(command, list) or not command or not all(isinstance(part, str) for part in command):
        return "command.form", "is not a list of texts: the program, then each of its arguments"
    if any("\0" in part for part in command):
        return "command.form", "holds a NUL"
    if not command[0] or command[0].startswith("-"):
        return "command.program", "begins with no program"
    return None


def _text_rule(pointer: str, problem: Callable[[Any], Problem | None]) -> Rule:
    """Return the policy of one argument; a list is checked entry by entry."""
    steps = steps_of(pointer)

    def rule(arguments: dict[str, Any]) -> Iterator[Violation]:
        for at, value in places(arguments, steps):
            is_list = isinstance(value, list)
            for index, entry in enumerate(value if is_list else [value]):
                if entry is not None and (violation := problem(entry)) is not None:
                    yield Violation(f"{at}/{index}" if is_list else at, *violation)

    return rule


def _command_rule(pointer: str) -> Rule:
    steps = steps_of(pointer)

    def rule(arguments: dict[str, Any]) -> Iterator[Violation]:
        for at, value in places(arguments, steps):
            if value is not None and (violation := command_problem(value)) is not None:
                yield Violation(at, *violation)

    return rule


def _leaves(path: str) -> bool:
    depth = 0
    for step in _SEPARATORS.split(path):
        if step == "..":
            depth -= 1
        elif step not in ("", "."):
            depth += 1
        if depth < 0:
            return True
    return False


def _in_volume(path: str, volumes: frozenset[str]) -> bool:
    resolved: list[str] = []
    for step in path.split("/"):
        if step == "..":
            del resolved[-1:]
        elif step not in ("", "."):
            resolved.append(step)
    return len(resolved) >= 2 and f"/{resolved[0]}" == VOLUMES and resolved[1] in volumes
