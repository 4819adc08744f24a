"""`toolmesh namespace`: shows and changes who may publish into a namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.admin_connection import as_admin, as_caller, as_operator
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.inputs.target_options import add_operator_options, add_target_options
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolmesh.registry.v1 import namespace_service_pb2 as pb

app = typer.Typer(help="Show and change the owners of namespaces.", no_args_is_help=True)
Namespace = Annotated[str, typer.Argument(metavar="NAMESPACE", help="The namespace, such as acme.")]
Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="The DID that may publish there.")]
Owner = Annotated[str, typer.Option(help="The DID of the new owner.")]
_PREFIX = "namespaces/"


@app.command()
@report_errors
@add_operator_options()
def claim(
    namespace: Namespace,
    owner: Owner,
    provider: Annotated[str, typer.Option(help="The provider that its manifests must declare.")],
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Assign a free namespace to an owner.

    Only the operator may do so. An unassigned namespace belongs to the subject that registers its
    first tool.

    \b
    Example:
      toolmesh namespace claim acme --owner did:web:acme.example --provider 'Acme Ltd'
    """
    from toolmesh.registry.v1 import namespace_service_pb2 as pb
    from toolmesh.registry.v1.namespace_service_pb2_grpc import NamespaceServiceStub

    request = pb.ClaimNamespaceRequest(namespace=namespace, owner=owner, provider=provider)
    with as_operator(target) as transport:
        stub = NamespaceServiceStub(transport.channel)
        _print_namespace(transport.unary(stub.ClaimNamespace, request, None, repeatable=True).namespace, as_json)


@app.command()
@report_errors
@add_operator_options()
def transfer(
    namespace: Namespace,
    owner: Owner,
    provider: Annotated[str, typer.Option(help="The provider that new manifests must declare.")] = "",
    etag: Annotated[str, typer.Option(help="Only if the namespace still has this etag.")] = "",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Transfer a namespace to another owner.

    Its delegates are removed. Only the operator may do so.

    \b
    Example:
      toolmesh namespace transfer acme --owner did:web:newacme.example
    """
    from toolmesh.registry.v1 import namespace_service_pb2 as pb
    from toolmesh.registry.v1.namespace_service_pb2_grpc import NamespaceServiceStub

    request = pb.TransferNamespaceRequest(name=_resource_name(namespace), owner=owner, provider=provider, etag=etag)
    with as_operator(target) as transport:
        stub = NamespaceServiceStub(transport.channel)
        _print_namespace(transport.unary(stub.TransferNamespace, request, None, repeatable=True).namespace, as_json)


def _delegate_command(rpc: str) -> Callable[..., None]:
    """Return the command that adds or removes a delegate."""

    @report_errors
    @add_target_options()
    def run(namespace: Namespace, subject: Subject, *, target: Target, as_json: bool) -> None:
        from toolmesh.registry.v1 import namespace_service_pb2 as pb
        from toolmesh.registry.v1.namespace_service_pb2_grpc import NamespaceServiceStub

        request = getattr(pb, f"{rpc}Request")(name=_resource_name(namespace), subject=subject)
        with as_admin(target) as transport:
            method = getattr(NamespaceServiceStub(transport.channel), rpc)
            _print_namespace(transport.unary(method, request, None, repeatable=True).namespace, as_json)

    return run


for _name, _rpc, _text in (
    ("delegate", "AddDelegate", "Let another subject publish into a namespace."),
    ("undelegate", "RemoveDelegate", "Withdraw the permission of a delegate."),
):
    _example = f"\b\nExample:\n  toolmesh namespace {_name} acme did:web:acme.example:bots:publisher"
    app.command(_name, help=f"{_text}\n\n{_example}")(_delegate_command(_rpc))


@app.command("move-alias")
@report_errors
@add_target_options()
def move_alias(
    alias: Annotated[str, typer.Argument(metavar="ALIAS", help="The alias, such as acme.send_mail.")],
    from_tool: Annotated[str, typer.Option("--from", help="The tool that it points to now.")],
    to_tool: Annotated[str, typer.Option("--to", help="Another tool of the same namespace.")],
    reason: Annotated[str, typer.Option("--reason", "-r", help="The reason; recorded.")] = "",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Point an alias to another tool.

    \b
    Example:
      toolmesh namespace move-alias acme.send_mail --from acme.mail_v1 --to acme.mail_v2
    """
    from toolmesh.registry.v1 import namespace_service_pb2 as pb
    from toolmesh.registry.v1.namespace_service_pb2_grpc import NamespaceServiceStub

    from toolmesh_sdk.cli.views.documents import message_to_dict

    request = pb.MoveAliasRequest(alias=alias, from_tool=from_tool, to_tool=to_tool, reason=reason)
    with as_admin(target) as transport:
        stub = NamespaceServiceStub(transport.channel)
        tool = transport.unary(stub.MoveAlias, request, None, repeatable=True).tool
    if as_json:
        output.print_json({"tool": message_to_dict(tool)})
    else:
        output.out().print(output.text(f"{alias} points to {tool.name.removeprefix('tools/')}"))


@app.command()
@report_errors
@add_target_options()
def show(namespace: Namespace, *, target: Target, as_json: bool) -> None:
    """Show the owner and delegates of a namespace.

    \b
    Example:
      toolmesh namespace show acme
    """
    from toolmesh.registry.v1 import namespace_service_pb2 as pb
    from toolmesh.registry.v1.namespace_service_pb2_grpc import NamespaceServiceStub

    request = pb.GetNamespaceRequest(name=_resource_name(namespace))
    with as_caller(target) as transport:
        stub = NamespaceServiceStub(transport.channel)
        _print_namespace(transport.unary(stub.GetNamespace, request, None, repeatable=True).namespace, as_json)


@app.command("list")
@report_errors
@add_target_options()
def list_namespaces(*, target: Target, as_json: bool) -> None:
    """List namespaces and their owners.

    \b
    Example:
      toolmesh namespace list
    """
    from toolmesh.registry.v1 import namespace_service_pb2 as pb
    from toolmesh.registry.v1.namespace_service_pb2_grpc import NamespaceServiceStub

    from toolmesh_sdk.cli.views.documents import message_to_dict

    namespaces: list[pb.Namespace] = []
    request = pb.ListNamespacesRequest()
    with as_caller(target) as transport:
        stub = NamespaceServiceStub(transport.channel)
        while True:
            page = transport.unary(stub.ListNamespaces, request, None, repeatable=True)
            namespaces.extend(page.namespaces)
            request.page_token = page.next_page_token
            if not page.next_page_token:
                break
    if as_json:
        output.print_json({"namespaces": [message_to_dict(each) for each in namespaces]})
    else:
        rows = [(_short_name(each.name), each.provider, each.owner, str(len(each.delegates))) for each in namespaces]
        output.print_table(("NAMESPACE", "PROVIDER", "OWNER", "DELEGATES"), rows)


def _print_namespace(namespace: pb.Namespace, as_json: bool) -> None:
    from toolmesh_sdk.cli.views.documents import message_to_dict

    if as_json:
        output.print_json({"namespace": message_to_dict(namespace)})
        return
    console = output.out()
    owned = f"{_short_name(namespace.name)} belongs to {namespace.owner}, provider {namespace.provider}"
    console.print(output.text(owned, (f"  etag {namespace.etag}", "dim")))
    for subject in namespace.delegates:
        console.print(output.text(f"  {subject} may publish there"))


def _resource_name(namespace: str) -> str:
    return namespace if namespace.startswith(_PREFIX) else _PREFIX + namespace


def _short_name(name: str) -> str:
    return name.removeprefix(_PREFIX)
