"""The arguments that make bubblewrap build one sandbox. Standard library only: the launcher loads this."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

ALWAYS = ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv")
"""Namespaces of its own for everything, an end when its launcher ends, no terminal, no capability, no inherited word."""


def build_options(
    config: dict[str, Any], plan: dict[str, Any], source: Callable[[str], str], descriptors: dict[str, int]
) -> list[str]:
    """Return bubblewrap's options for a plan. `source` says where a host path can be found by whoever runs bubblewrap; `descriptors`
    are the open files that it is told of by option."""
    return [
        *ALWAYS,
        *("--uid", str(config["uid"]), "--gid", str(config["uid"]), "--hostname", config["hostname"]),
        *_root(config, plan, source),
        *("--chdir", "/tmp"),  # noqa: S108
        *(word for name, value in plan["environment"].items() for word in ("--setenv", name, value)),
        *(word for option, descriptor in descriptors.items() for word in (option, str(descriptor))),
    ]


def bind_sources(config: dict[str, Any], plan: dict[str, Any]) -> list[str]:
    """Every host path that a sandbox shows, each once."""
    shown = [host for host, _ in (*config["binds"], *plan["readable"], *plan["writable"])]
    return list(dict.fromkeys((*shown, *([plan["egress_socket"]] if plan["egress_socket"] else ()))))


def _root(config: dict[str, Any], plan: dict[str, Any], source: Callable[[str], str]) -> Iterator[str]:
    """Build the root from nothing, in order, and close it for writing at the end."""
    for host, inside in config["binds"]:
        yield from ("--ro-bind", source(host), inside)
    for target, inside in config["links"]:
        yield from ("--symlink", target, inside)
    yield from ("--proc", "/proc", "--dev", "/dev")
    yield from ("--perms", "1777", "--size", str(plan["scratch_bytes"]), "--tmpfs", "/tmp")  # noqa: S108
    for host, inside in plan["readable"]:
        yield from ("--ro-bind", source(host), inside)
    for host, inside in plan["writable"]:
        yield from ("--bind", source(host), inside)
    if plan["egress_socket"]:
        yield from ("--ro-bind", source(plan["egress_socket"]), config["egress"])
    yield from ("--remount-ro", "/dev", "--remount-ro", "/")
