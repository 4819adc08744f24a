from __future__ import annotations

import base64
import json
import shlex
import stat
import time

import pytest

from localmesh.state.state import State
from localmesh.view import banner as module
from localmesh.view.banner import local_token, mint_token, render_banner

DOCUMENT = {
    "ready_seconds": 6.21,
    "rss_bytes": 412_000_000,
    "gateway": {"url": "http://127.0.0.1:8090", "tls_url": "https://127.0.0.1:8443"},
    "grpc": {"address": "127.0.0.1:8090"},
    "ca": "/state/pki/ca.pem",
    "state": "/state",
    "ports": {"edge": 8090, "edge-tls": 8443},
}


def test_one_screen_leads_to_the_command_and_a_first_call_without_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLMESH_STATE", "/state")
    lines = render_banner(DOCUMENT, "", detached=False).splitlines()
    assert len(lines) < 20
    assert "Ctrl-C" in lines[0]
    assert "8080" in next(line for line in lines if "JSON-RPC" in line)
    assert "8443" not in lines[4].partition("https://127.0.0.1:8443/rpc")[2]
    assert next(line for line in lines if "token" in line).endswith("/state/token")
    assert shlex.split(lines[-2])[-1].endswith("/toolmesh env)")
    assert shlex.split(lines[-1])[:3] == ["toolmesh", "call", "echo"]


def test_the_command_names_the_state_where_that_is_not_the_usual_one() -> None:
    assert "env --state /state)" in render_banner(DOCUMENT, "", detached=False)


def test_without_a_token_the_reason_is_there_instead() -> None:
    text = render_banner(DOCUMENT, "authz is away", detached=True)
    assert "authz is away" in text
    assert "/state/token" not in text
    assert "toolmesh down" in text


def fake_token(begin: float, end: float) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"iat": int(begin), "exp": int(end)}).encode()).decode().rstrip("=")
    return f"head.{claims}.sign"


async def test_a_token_is_kept_for_half_of_its_time_and_within_the_longest_lifetime(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(module, "MINT", ("-c", f"print({fake_token(now, now + 100)!r})"))
    first, _ = await local_token(state, 100)
    assert stat.S_IMODE(state.token_file.stat().st_mode) == 0o600
    monkeypatch.setattr(module, "MINT", ("-c", "print('second')"))
    assert await local_token(state, 100) == (first, "")
    assert await local_token(state, 99) == ("second", "")
    state.token_file.write_text(fake_token(now - 60, now + 40))
    assert await local_token(state, 100) == ("second", "")
    monkeypatch.setattr(module, "MINT", ("-c", "import sys; sys.exit('no authority')"))
    assert await local_token(state, 100) == (None, "no authority")
    assert not state.token_file.exists()


async def test_minting_that_fails_gives_the_last_words(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MINT", ("-c", "import sys; sys.exit('first\\nno authority')"))
    assert await mint_token(state, 60) == (None, "no authority")


async def test_minting_that_works_gives_the_token(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MINT", ("-c", "print('the-token')"))
    assert await mint_token(state, 60) == ("the-token", "")
