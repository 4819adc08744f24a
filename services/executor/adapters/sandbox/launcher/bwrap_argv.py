"""Builds the command-line options of bubblewrap for one sandbox."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

ALWAYS = ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv")
"""All namespaces unshared, killed with the launcher, no terminal, no capability, no inherited environment."""


def build_options(
    config: dict[str, Any], plan: dict[str, Any], source: Callable[[str], str], descriptors: dict[str, int]
) -> list[str]:
    """Return bubblewrap's options for a plan. `source` maps a host path to where bubblewrap's user can reach it;
    `descriptors` maps options to open file descriptors."""
    return [
        *ALWAYS,
        *("--uid", str(config["uid"]), "--gid", str(config["uid"]), "--hostname", config["hostname"]),
        *_root_options(config, plan, source),
        *("--chdir", "/tmp"),  # noqa: S108
        *(arg for name, value in plan["environment"].items() for arg in ("--setenv", name, value)),
        *(arg for option, descriptor in descriptors.items() for arg in (option, str(descriptor))),
    ]


def bind_sources(config: dict[str, Any], plan: dict[str, Any]) -> list[str]:
    """Return every host path that is mounted into a sandbox, without duplicates."""
    mounted = [host for host, _ in (*config["binds"], *plan["readable"], *plan["writable"])]
    return list(dict.fromkeys((*mounted, *([plan["egress_socket"]] if plan["egress_socket"] else ()))))


def _root_options(config: dict[str, Any], plan: dict[str, Any], source: Callable[[str], str]) -> Iterator[str]:
    """Yield the options that build the root in mount order and remount it read-only at the end."""
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
