from __future__ import annotations

from dataclasses import asdict
from typing import Any

from services.executor.adapters.sandbox.launcher import bwrap_argv
from services.executor.adapters.sandbox.port import Plan

CONFIG: dict[str, Any] = {
    "binds": [["/usr", "/usr"], ["/etc-of-ours", "/etc"]],
    "links": [["usr/bin", "/bin"]],
    "uid": 65534,
    "hostname": "sandbox",
    "egress": "/run/egress.sock",
}


def options(**changes: Any) -> list[str]:
    plan = asdict(Plan(("/bin/true",), **changes))
    return bwrap_argv.build_options(CONFIG, plan, lambda host: f"/staged{host}", {"--seccomp": 7})


def following(words: list[str], option: str, count: int) -> list[tuple[str, ...]]:
    return [tuple(words[at + 1 : at + 1 + count]) for at, word in enumerate(words) if word == option]


def test_options_unshare_everything_from_the_host() -> None:
    words = options()
    # Written out: an option that is dropped from the module must be dropped here, too.
    assert {"--unshare-all", "--die-with-parent", "--new-session", "--clearenv"} <= set(words)
    assert following(words, "--cap-drop", 1) == [("ALL",)]
    assert "--share-net" not in words
    assert following(words, "--uid", 1) == [("65534",)]


def test_only_writable_mounts_of_the_plan_are_writable() -> None:
    words = options(readable=(("/a", "/in/a"),), writable=(("/b", "/in/b"),))
    assert ("/staged/a", "/in/a") in following(words, "--ro-bind", 2)
    assert following(words, "--bind", 2) == [("/staged/b", "/in/b")]
    assert following(words, "--tmpfs", 1) == [("/tmp",)]


def test_root_is_remounted_read_only_last() -> None:
    words = options(writable=(("/b", "/in/b"),), egress_socket="/x.sock")
    closed = len(words) - 1 - words[::-1].index("--remount-ro")
    assert words[closed + 1] == "/"
    assert not {"--bind", "--ro-bind", "--tmpfs", "--symlink"} & set(words[closed:])


def test_tmp_gets_the_size_of_the_plan() -> None:
    words = options(scratch_bytes=12345)
    at = words.index("--tmpfs")
    assert words[at - 2 : at] == ["--size", "12345"]


def test_egress_socket_is_mounted_only_if_planned() -> None:
    assert not any("egress" in word for word in options())
    assert ("/staged/x.sock", "/run/egress.sock") in following(options(egress_socket="/x.sock"), "--ro-bind", 2)


def test_environment_is_that_of_the_plan() -> None:
    assert following(options(environment={"A": "1", "B": "2"}), "--setenv", 2) == [("A", "1"), ("B", "2")]


def test_bind_sources_have_no_duplicates() -> None:
    plan = asdict(
        Plan(("/bin/true",), readable=(("/a", "/1"), ("/a", "/2")), writable=(("/b", "/3"),), egress_socket="/s")
    )
    assert bwrap_argv.bind_sources(CONFIG, plan) == ["/usr", "/etc-of-ours", "/a", "/b", "/s"]
