"""`toolmesh namespace`: who may publish under which name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toolmesh_sdk.cli.failures import reported
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.admin_connection import as_caller, as_steward
from toolmesh_sdk.cli.inputs.target import Place
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolmesh.registry.v1 import namespace_service_pb2 as pb

app = typer.Typer(help="See who owns which namespace, and change it.", no_args_is_help=True)
Namespace = Annotated[str, typer.Argument(metavar="NAMESPACE", help="The namespace, such as acme.")]
Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="Who may publish there, a DID.")]
Owner = Annotated[str, typer.Option(help="Who will own it, a DID.")]
_PREFIX = "namespaces/"


@app.command()
@reported
def claim(
    namespace: Namespace,
    owner: Owner,
    provider: Annotated[str, typer.Option(help="The provider that its manifests must name.")],
    timeout: options.Timeout = 30.0,
    state: options.State = None,
    as_json: options.Json = False,
) -> None:
    """Give a namespace that nobody owns to somebody, before its first tool; as the operator of the local mesh.

    Without it, a namespace belongs to whoever registers its first tool.
    """
    from toolmesh.registry.v1 import namespace_service_pb2 as pb
    from toolmesh.registry.v1.namespace_service_pb2_grpc import NamespaceServiceStub

    request = pb.ClaimNamespaceRequest(namespace=namespace, owner=owner, provider=provider)
    with as_steward(Place(state=state), timeout) as transport:
        stub = NamespaceServiceStub(transport.channel)
        _tell(transport.unary(stub.ClaimNamespace, request, None, repeatable=True).namespace, as_json)


@app.command()
@reported
def transfer(
    namespace: Namespace,
    owner: Owner,
    provider: Annotated[str, typer.Option(help="The provider that manifests must name from now on.")] = "",
    etag: Annotated[str, typer.Option(help="Only if the namespace is still the one with this etag.")] = "",
    timeout: options.Timeout = 30.0,
    state: options.State = None,
    as_json: options.Json = False,
) -> None:
    """Give a namespace to another owner, and take it from its delegates; as the operator of the local mesh."""
    from toolmesh.registry.v1 import namespace_service_pb2 as pb
    from toolmesh.registry.v1.namespace_service_pb2_grpc import NamespaceServiceStub

    request = pb.TransferNamespaceRequest(name=_name(namespace), owner=owner, provider=provider, etag=etag)
    with as_steward(Place(state=state), timeout) as transport:
        stub = NamespaceServiceStub(transport.channel)
        _tell(transport.unary(stub.TransferNamespace, request, None, repeatable=True).namespace, as_json)


def _delegating(rpc: str) -> Callable[..., None]:
    """Return a command that changes who else may publish."""

    @reported
    def run(
        namespace: Namespace,
        subject: Subject,
        timeout: options.Timeout = 30.0,
        url: options.Url = "",
        token: options.Token = None,
        state: options.State = None,
        ca: options.Ca = None,
        as_json: options.Json = False,
    ) -> None:
        from toolmesh.registry.v1 import namespace_service_pb2 as pb
        from toolmesh.registry.v1.namespace_service_pb2_grpc import NamespaceServiceStub

        request = getattr(pb, f"{rpc}Request")(name=_name(namespace), subject=subject)
        with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout) as transport:
            method = getattr(NamespaceServiceStub(transport.channel), rpc)
            _tell(transport.unary(method, request, None, repeatable=True).namespace, as_json)

    return run


app.command("delegate", help="Let somebody else publish into a namespace.")(_delegating("AddDelegate"))
app.command("undelegate", help="Take that permission back.")(_delegating("RemoveDelegate"))


@app.command("move-alias")
@reported
def move_alias(
    alias: Annotated[str, typer.Argument(metavar="ALIAS", help="The alias, such as acme.send_mail.")],
    from_tool: Annotated[str, typer.Option("--from", help="The tool that it leads to now.")],
    to_tool: Annotated[str, typer.Option("--to", help="The tool of the same namespace that it will lead to.")],
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why, for people; recorded.")] = "",
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Make an alias lead to another tool."""
    from toolmesh.registry.v1 import namespace_service_pb2 as pb
    from toolmesh.registry.v1.namespace_service_pb2_grpc import NamespaceServiceStub

    from toolmesh_sdk.cli.views.documents import document

    request = pb.MoveAliasRequest(alias=alias, from_tool=from_tool, to_tool=to_tool, reason=reason)
    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout) as transport:
        stub = NamespaceServiceStub(transport.channel)
        tool = transport.unary(stub.MoveAlias, request, None, repeatable=True).tool
    if as_json:
        output.print_json({"tool": document(tool)})
    else:
        output.out().print(output.text(f"{alias} leads to {tool.name.removeprefix('tools/')}"))


@app.command()
@reported
def show(
    namespace: Namespace,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Show who owns a namespace and who else may publish there."""
    from toolmesh.registry.v1 import namespace_service_pb2 as pb
    from toolmesh.registry.v1.namespace_service_pb2_grpc import NamespaceServiceStub

    request = pb.GetNamespaceRequest(name=_name(namespace))
    with as_caller(Place(url=url, token=token, state=state, ca=ca), timeout) as transport:
        stub = NamespaceServiceStub(transport.channel)
        _tell(transport.unary(stub.GetNamespace, request, None, repeatable=True).namespace, as_json)


@app.command("list")
@reported
def list_namespaces(
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """List the namespaces and their owners."""
    from toolmesh.registry.v1 import namespace_service_pb2 as pb
    from toolmesh.registry.v1.namespace_service_pb2_grpc import NamespaceServiceStub

    from toolmesh_sdk.cli.views.documents import document

    found: list[pb.Namespace] = []
    request = pb.ListNamespacesRequest()
    with as_caller(Place(url=url, token=token, state=state, ca=ca), timeout) as transport:
        stub = NamespaceServiceStub(transport.channel)
        while True:
            page = transport.unary(stub.ListNamespaces, request, None, repeatable=True)
            found.extend(page.namespaces)
            request.page_token = page.next_page_token
            if not page.next_page_token:
                break
    if as_json:
        output.print_json({"namespaces": [document(each) for each in found]})
    else:
        rows = [(_bare(each.name), each.provider, each.owner, str(len(each.delegates))) for each in found]
        output.print_table(("NAMESPACE", "PROVIDER", "OWNER", "DELEGATES"), rows)


def _tell(namespace: pb.Namespace, as_json: bool) -> None:
    from toolmesh_sdk.cli.views.documents import document

    if as_json:
        output.print_json({"namespace": document(namespace)})
        return
    console = output.out()
    owned = f"{_bare(namespace.name)} belongs to {namespace.owner}, provider {namespace.provider}"
    console.print(output.text(owned, (f"  etag {namespace.etag}", "dim")))
    for subject in namespace.delegates:
        console.print(output.text(f"  {subject} may publish there"))


def _name(namespace: str) -> str:
    return namespace if namespace.startswith(_PREFIX) else _PREFIX + namespace


def _bare(name: str) -> str:
    return name.removeprefix(_PREFIX)
