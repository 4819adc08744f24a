from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import redis

from localmesh.parts.valkey import valkey_url
from localmesh.state.secrets import VALKEY_USERS, read_secrets
from localmesh.state.state import State
from localmesh.tests.deadlines import eventually
from localmesh.tests.harness import Commands


def url(commands: Commands, password: str | None = None) -> str:
    known = read_secrets(State(commands.state)).valkey
    return valkey_url(password or known, commands.runtime()["ports"]["valkey"])


def test_only_the_password_opens_it(mesh: Commands) -> None:
    assert redis.Redis.from_url(url(mesh)).ping()
    for refused in (url(mesh, "guess"), f"redis://127.0.0.1:{mesh.runtime()['ports']['valkey']}"):
        with pytest.raises(redis.AuthenticationError):
            redis.Redis.from_url(refused).ping()


OWN_KEYS = {"executor": "toolmesh:spending:x", "audit": "toolmesh:audit:x"}
OWN_CHANNELS = {
    "authz": "toolmesh:authz:invalidations",
    "registry": "toolmesh:registry:changes",
    "gateway": "toolmesh:mcp:control",
}


def client_of(commands: Commands, service: str) -> Any:
    password = read_secrets(State(commands.state)).valkey_users[service]
    return redis.Redis.from_url(valkey_url(password, commands.runtime()["ports"]["valkey"], service))


@pytest.mark.parametrize("service", VALKEY_USERS)
def test_a_service_reaches_only_what_is_its_own(mesh: Commands, service: str) -> None:
    client = client_of(mesh, service)
    assert client.ping()
    for owner, key in OWN_KEYS.items():
        if owner == service:
            assert client.exists(key) == 0
        else:
            for command in (
                ("GET", key),
                ("EXISTS", key),
                ("SET", key, "x"),
                ("DEL", key),
                ("XADD", key, "*", "a", "b"),
            ):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    client.execute_command(*command)
            with pytest.raises(redis.ResponseError):
                client.eval("return redis.call('GET', KEYS[1])", 1, key)
    for owner, channel in OWN_CHANNELS.items():
        if owner == service:
            assert client.publish(channel, b"x") >= 0
        else:
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.publish(channel, b"x")


@pytest.mark.parametrize("service", VALKEY_USERS)
@pytest.mark.parametrize(
    "command", ["CONFIG GET *", "KEYS *", "FLUSHALL", "ACL LIST", "SHUTDOWN", "MONITOR", "SCRIPT FLUSH", "CLIENT LIST"]
)
def test_a_service_does_not_administer_the_server(mesh: Commands, service: str, command: str) -> None:
    with pytest.raises(redis.exceptions.NoPermissionError):
        client_of(mesh, service).execute_command(*command.split())


def test_it_listens_on_loopback_and_writes_everything_down(mesh: Commands) -> None:
    settings = redis.Redis.from_url(url(mesh)).config_get("*")
    assert isinstance(settings, dict)
    assert (settings["bind"], settings["appendonly"], settings["appendfsync"]) == ("127.0.0.1", "yes", "everysec")


def test_the_password_is_on_no_command_line(mesh: Commands) -> None:
    pid = mesh.part("valkey")["pid"]
    with open(f"/proc/{pid}/cmdline") as command_line:  # noqa: PTH123
        assert read_secrets(State(mesh.state)).valkey not in command_line.read()


def test_what_was_written_survives_a_kill(commands: Commands) -> None:
    document = commands.up()
    client = redis.Redis.from_url(url(commands))
    client.set("kept", "yes")
    # 1 of 1: the file on disk has everything up to here.
    assert client.waitaof(1, 0, 5000)[0] == 1
    os.kill(commands.part("valkey")["pid"], signal.SIGKILL)
    eventually(lambda: commands.part("valkey")["restarts"] == 1 and commands.part("valkey")["ready"])
    assert redis.Redis.from_url(url(commands)).get("kept") == b"yes"
    assert document["services"][0]["address"] == commands.part("valkey")["address"]
