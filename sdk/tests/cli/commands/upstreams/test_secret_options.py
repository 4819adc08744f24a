"""`--secret` of the commands of `toolmesh connect`, and the references of an mcpServers file."""

from __future__ import annotations

import pytest
import typer
from toolmesh_sdk.cli.commands.upstreams.secret_options import (
    environment_secrets,
    file_secrets,
    header_secrets,
    metadata_secrets,
)
from toolmesh_sdk.cli.installs.package import InstallError


def test_a_secret_has_a_place_and_a_name() -> None:
    [variable] = environment_secrets(["GITHUB_TOKEN=git_key"])
    assert (variable.variable, variable.secret) == ("GITHUB_TOKEN", "secret://git_key")
    token, key = header_secrets(["Authorization=secret://a", "X-Api-Key=b"])
    assert (token.key, token.secret, token.prefix) == ("authorization", "secret://a", "Bearer ")
    assert (key.key, key.secret, key.prefix) == ("x-api-key", "secret://b", "")
    [metadata] = metadata_secrets(["x.key-bin=c"])
    assert (metadata.key, metadata.prefix) == ("x.key-bin", "")


@pytest.mark.parametrize("text", ["GITHUB_TOKEN", "=name", "TOKEN=ghp_Abc123", "TOKEN=", "a b=name"])
def test_what_may_be_a_value_is_refused(text: str) -> None:
    for parse in (environment_secrets, header_secrets, metadata_secrets):
        with pytest.raises(typer.BadParameter):
            parse([text])


def test_a_file_names_secrets_and_holds_none() -> None:
    entry = {
        "env": {"TOKEN": "secret://git_key"},
        "headers": {"Authorization": "Bearer secret://a", "X-Key": "secret://b"},
    }
    assert file_secrets(entry, "env") == ["TOKEN=secret://git_key"]
    assert file_secrets(entry, "headers") == ["Authorization=secret://a", "X-Key=secret://b"]
    assert file_secrets({}, "env") == []
    for plain in ({"env": {"TOKEN": "ghp_Abc123"}}, {"headers": {"X-Key": "Bearer secret://b"}}):
        with pytest.raises(InstallError):
            file_secrets(plain, next(iter(plain)))
