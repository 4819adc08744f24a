"""`toolmesh secrets`: the encrypted credentials of the tools of a local mesh. Their values are never shown."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from toolmesh_sdk.cli.views import output

from localmesh.exit_codes import FAILED, WRONG_STATE
from localmesh.options import JsonOption, StateOption, print_outcome
from localmesh.settings import state_path
from localmesh.state.secrets import SecretFiles
from localmesh.state.state import State

if TYPE_CHECKING:
    from libs.common.secret_store.folders import SealedFolder
    from libs.common.secret_store.secret import Secret

app = typer.Typer(help="Keep the credentials that tools send, encrypted.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name: manifests say secret://NAME.")]
TenantOption = Annotated[str, typer.Option(help="Only for calls of this tenant. Default: all that have none.")]
FileOption = Annotated[
    Path | None, typer.Option("--from-file", exists=True, dir_okay=False, help="Read the value from this file.")
]


@app.command("set")
def set_secret(
    name: Name,
    namespace: Annotated[list[str], typer.Option(help="A namespace whose tools may use it; repeatable.")],
    host: Annotated[
        list[str] | None, typer.Option(help="A host that it may be sent to; repeatable. Without one: nowhere.")
    ] = None,
    tenant: TenantOption = "",
    expires: Annotated[str, typer.Option(help="When it stops being used, such as 2027-01-31.")] = "",
    token_url: Annotated[
        str, typer.Option(help="The token endpoint, if the value is an OAuth 2 client's secret.")
    ] = "",
    client_id: Annotated[str, typer.Option(help="The OAuth 2 client.")] = "",
    scope: Annotated[str, typer.Option(help="The scopes to ask for, separated by spaces.")] = "",
    audience: Annotated[str, typer.Option(help="The audience to ask for.")] = "",
    in_body: Annotated[bool, typer.Option("--secret-in-body", help="Send the client's secret in the body.")] = False,
    for_caller: Annotated[
        bool, typer.Option("--for-caller", help="Ask for a token of each caller, by exchange.")
    ] = False,
    from_file: FileOption = None,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Store a secret, or replace it and its binding.

    The value is read from standard input, a prompt or a file, never from the command line. The next call uses it. With
    --token-url it is the secret of an OAuth 2 client, and services get the token that the client is granted.

    \b
    Example:
      printf %s "$KEY" | toolmesh secrets set crm_key --host api.example.com --namespace acme
      toolmesh secrets set crm_key --host api.example.com --namespace acme --token-url https://id.example.com/token
    """
    from libs.common.secret_store.secret import (
        Binding,
        ClientAuth,
        GrantType,
        OAuthClient,
        Secret,
        SecretFormError,
        check_name,
        check_value,
        parse_expiry,
    )

    folder = _folder(state)
    grant = GrantType.TOKEN_EXCHANGE if for_caller else GrantType.CLIENT_CREDENTIALS
    auth = ClientAuth.BODY if in_body else ClientAuth.BASIC
    oauth = OAuthClient(token_url, client_id, grant, scope, audience, auth) if token_url else None
    if oauth is None and (client_id or scope or audience or for_caller or in_body):
        raise typer.BadParameter("names the token endpoint of these options", param_hint="--token-url")
    try:
        binding = Binding(
            tuple(host or ()), tuple(namespace), parse_expiry(expires) if expires else None, oauth
        ).check()
        secret = Secret(check_name(name), check_value(_value(from_file)), binding, tenant, datetime.now(UTC))
    except SecretFormError as error:
        raise typer.BadParameter(str(error)) from None
    folder.put(secret)
    print_outcome(
        _document(secret), f"secret://{name} is set for {', '.join(binding.hosts) or 'no host'}", as_json=as_json
    )


@app.command()
def rotate(
    name: Name,
    tenant: TenantOption = "",
    expires: Annotated[str, typer.Option(help="When the new value stops being used.")] = "",
    from_file: FileOption = None,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace the value; hosts and namespaces stay.

    \b
    Example:
      printf %s "$NEW_KEY" | toolmesh secrets rotate crm_key
    """
    from libs.common.secret_store.secret import Binding, Secret, SecretFormError, check_value, parse_expiry

    folder = _folder(state)
    former = _require(folder, name, tenant)
    try:
        until = parse_expiry(expires) if expires else None
        binding = Binding(former.binding.hosts, former.binding.namespaces, until, former.binding.oauth)
        secret = Secret(former.name, check_value(_value(from_file)), binding, tenant, datetime.now(UTC))
    except SecretFormError as error:
        raise typer.BadParameter(str(error)) from None
    folder.put(secret)
    print_outcome(_document(secret), f"secret://{name} is rotated; the next call uses it", as_json=as_json)


@app.command("list")
def list_secrets(state: StateOption = None, as_json: JsonOption = False) -> None:
    """List the secrets without their values.

    \b
    Example:
      toolmesh secrets list
    """
    from libs.common.secret_store.folders import SecretUnreadableError
    from libs.common.secret_store.secret import describe

    try:
        documents = describe(_folder(state).entries())
    except SecretUnreadableError:
        _fail("a secret cannot be decrypted: its sealing key is missing, or the file was changed")
    if as_json:
        output.print_json({"secrets": documents})
        return
    rows = [
        (each["name"], each["tenant"] or "-", " ".join(each["hosts"]), " ".join(each["namespaces"]), _shown(each))
        for each in documents
    ]
    output.print_table(("NAME", "TENANT", "HOSTS", "NAMESPACES", "EXPIRES"), rows)


@app.command()
def remove(name: Name, tenant: TenantOption = "", state: StateOption = None, as_json: JsonOption = False) -> None:
    """Remove a secret.

    \b
    Example:
      toolmesh secrets remove crm_key
    """
    folder = _folder(state)
    _require(folder, name, tenant)
    folder.remove(name, tenant)
    print_outcome({"removed": name, "tenant": tenant}, f"secret://{name} is removed", as_json=as_json)


def _folder(state: Path | None) -> SealedFolder:
    from libs.common.sealing import read_seal
    from libs.common.secret_store.folders import SealedFolder

    place = State(state_path(state))
    if not place.marker.exists():
        typer.echo(f"{place.path} holds no mesh; `toolmesh up` makes one", err=True)
        raise typer.Exit(WRONG_STATE)
    files = SecretFiles(place.secrets)
    try:
        return SealedFolder(files.tool_secrets, read_seal(files.sealing_keys))
    except ValueError:
        _fail("the state folder has no sealing key; `toolmesh up` makes one")


def _require(folder: SealedFolder, name: str, tenant: str) -> Secret:
    from libs.common.secret_store.folders import SecretUnreadableError
    from libs.common.secret_store.secret import SecretFormError, check_name

    try:
        secret = folder.find(check_name(name), tenant)
    except SecretFormError as error:
        raise typer.BadParameter(str(error)) from None
    except (SecretUnreadableError, OSError):
        _fail(f"secret://{name} cannot be decrypted; set it again")
    if secret is None:
        whose = f" of tenant {tenant}" if tenant else ""
        _fail(f"there is no secret {name}{whose}; `toolmesh secrets list` shows those that are there")
    return secret


def _value(file: Path | None) -> str:
    if file is not None:
        return file.read_text(errors="surrogateescape")
    if sys.stdin.isatty():
        return str(typer.prompt("Value", hide_input=True, err=True))
    return sys.stdin.read()


def _document(secret: Secret) -> dict[str, object]:
    from libs.common.secret_store.secret import describe

    return dict(describe([secret])[0])


def _shown(document: dict[str, object]) -> str:
    return str(document["expires"] or "never")


def _fail(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(FAILED)
