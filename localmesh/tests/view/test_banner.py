from __future__ import annotations

import json
import shlex

import pytest

from localmesh.state.state import State
from localmesh.view import banner as module
from localmesh.view.banner import mint_token, render_banner

DOCUMENT = {
    "ready_seconds": 6.21,
    "rss_bytes": 412_000_000,
    "gateway": {"url": "http://127.0.0.1:8090", "tls_url": "https://127.0.0.1:8443"},
    "grpc": {"address": "127.0.0.1:8090"},
    "ca": "/state/pki/ca.pem",
    "state": "/state",
}


def test_the_printed_call_is_complete_and_can_be_copied() -> None:
    text = render_banner(DOCUMENT, "abc", "")
    command = shlex.split(text[text.index("curl") :].split("\n\n")[0].replace("\\\n", " "))
    assert command[:3] == ["curl", "-s", "http://127.0.0.1:8090/rpc"]
    assert "authorization: Bearer abc" in command
    assert json.loads(command[-1])["method"] == "tools.invoke"


def test_the_command_names_the_state_where_that_is_not_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shlex.split(render_banner(DOCUMENT, "abc", "").splitlines()[-1])[-2:] == ["--state", "/state"]
    monkeypatch.setenv("TOOLMESH_STATE", "/state")
    assert "--state" not in render_banner(DOCUMENT, "abc", "")


def test_without_a_token_the_reason_is_there_instead_of_a_call() -> None:
    text = render_banner(DOCUMENT, None, "authz is away")
    assert "authz is away" in text
    assert "curl" not in text


async def test_minting_that_fails_gives_the_last_words(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MINT", ("-c", "import sys; sys.exit('first\\nno authority')"))
    assert await mint_token(state) == (None, "no authority")


async def test_minting_that_works_gives_the_token(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MINT", ("-c", "print('the-token')"))
    assert await mint_token(state) == ("the-token", "")
