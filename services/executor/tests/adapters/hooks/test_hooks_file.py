"""The hooks file: parsed strictly, with all problems reported together."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from libs.common.json.jsonio import dump
from libs.common.runtime.settings import SettingsError
from libs.common.telemetry.log import Log
from libs.common.testing.clock import ManualClock
from services.executor.adapters.hooks.hooks_file import DeclaredHooks, parse_hooks, read_hooks_file
from services.executor.domain.hooks.hooks import MAX_HOOKS, Phase
from services.executor.tests.samples import a_tool


def webhook(**changes: Any) -> dict[str, Any]:
    fields = {"name": "guard", "phase": "pre", "tools": ["core.*"], "kind": "webhook", "url": "https://a.example/h"}
    return {**fields, **changes}


def plugin(**changes: Any) -> dict[str, Any]:
    fields = {"name": "own", "phase": "pre", "tools": ["*"], "kind": "plugin", "entry_point": "asyncio:sleep"}
    return {**fields, **changes}


def problems(*declared: Any) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        parse_hooks(list(declared))
    return caught.value.problems


def test_without_a_file_there_are_no_hooks() -> None:
    declared_hooks = read_hooks_file(None)
    assert not declared_hooks.open(ManualClock(), Log("executor")).active
    assert str(declared_hooks) == "none"


def test_hooks_are_read_from_a_file_and_never_shown_with_their_secrets(tmp_path: Path, pki: Any) -> None:
    secret, file = tmp_path / "secret", tmp_path / "hooks.json"
    secret.write_bytes(b"a-very-secret-secret\n")
    more = {"timeout_ms": 250, "on_error": "open", "may_change_input": True, "sees_sensitive": True}
    signed = webhook(secret_file=str(secret), ca_file=str(pki.ca), **more)
    on_failure = plugin(phase="failure")
    file.write_bytes(dump([signed, on_failure, webhook(name="local", url="http://localhost:9/", phase="post")]))
    declared_hooks = read_hooks_file(file)
    hooks = declared_hooks.open(ManualClock(), Log("executor"))
    [guard] = hooks.matching(a_tool(), Phase.PRE)
    assert (guard.name, guard.timeout, guard.fails_open) == ("guard", 0.25, True)
    assert (guard.may_change_input, guard.sees_sensitive) == (True, True)
    [failure] = hooks.matching(a_tool(qualified="shop.other"), Phase.FAILURE)
    assert (failure.name, failure.timeout, failure.fails_open) == ("own", 1.0, True)
    [post] = hooks.matching(a_tool(), Phase.POST)
    assert (post.fails_open, post.may_change_input, post.sees_sensitive) == (False, False, False)
    assert str(declared_hooks) == "pre:guard failure:own post:local"
    assert "very-secret" not in f"{declared_hooks!r} {vars(guard.respondent)}"
    asyncio.run(declared_hooks.close())


@pytest.mark.parametrize(
    "wrong",
    [
        webhook(name="Guard"),
        webhook(name=7),
        webhook(phase="during"),
        webhook(tools=[]),
        webhook(tools="core.*"),
        webhook(tools=["core.*", "co re"]),
        webhook(tools=[["core"]]),
        webhook(kind="script"),
        webhook(kind=["plugin"]),
        webhook(timeout_ms=0),
        webhook(timeout_ms=60_001),
        webhook(timeout_ms=1.5),
        webhook(timeout_ms=True),
        webhook(on_error="maybe"),
        webhook(may_change_input="yes"),
        webhook(sees_sensitive=1),
        webhook(phase="post", may_change_input=True),
        webhook(phase="failure", on_error="closed"),
        webhook(retries=3),
        webhook(entry_point="a:b"),
        webhook(url="http://a.example/"),
        webhook(url="ftp://localhost/"),
        webhook(url="https://user:pw@a.example/"),
        webhook(url="https://"),
        webhook(url="https://a.example:99999/"),
        webhook(url="https://a.example/#x"),
        webhook(url="https://a.example/a b"),
        webhook(url="http://localhost.a.example/"),
        webhook(url=None),
        webhook(secret_file="/nowhere/at/all"),
        webhook(secret_file=7),
        webhook(ca_file="/nowhere/at/all"),
        webhook(ca_file="/etc/hostname"),
        plugin(entry_point="asyncio"),
        plugin(entry_point="os:system('x')"),
        plugin(entry_point="json:dumps"),
        plugin(entry_point="no_such_module_anywhere:f"),
        plugin(url="https://a.example/"),
        "guard",
        None,
    ],
    ids=str,
)
def test_every_mistake_is_one_problem(wrong: Any) -> None:
    assert len(problems(wrong)) == 1


def test_a_short_secret_is_no_secret(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"   0123456789abcde  \n")
    assert len(problems(webhook(secret_file=str(tmp_path / "short")))) == 1


def test_all_problems_are_reported_together() -> None:
    reported = problems(webhook(phase="x", tools=[]), plugin(entry_point="x"), webhook(), 7)
    assert len(reported) == 5
    assert all(problem.startswith("TOOLMESH_HOOKS: ") for problem in reported)


@pytest.mark.parametrize(
    "contents", [b"{", b'{"hooks": []}', dump([plugin(name=f"p{n}") for n in range(MAX_HOOKS + 1)])]
)
def test_a_file_that_is_not_a_list_is_refused(tmp_path: Path, contents: bytes) -> None:
    file = tmp_path / "hooks.json"
    file.write_bytes(contents)
    with pytest.raises(SettingsError):
        read_hooks_file(file)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        read_hooks_file(tmp_path)


def test_an_empty_list_is_no_mistake() -> None:
    assert str(parse_hooks([])) == str(DeclaredHooks())
