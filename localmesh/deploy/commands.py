"""The commands of `toolmesh deploy`, each of which may run any number of times."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from localmesh.deploy.layout import Namespaces

app = typer.Typer(
    no_args_is_help=True, help="Prepare a Kubernetes cluster for the mesh.", pretty_exceptions_enable=False
)

NamespaceOption = Annotated[str, typer.Option("--namespace", help="Namespace of the mesh.")]
ExecutorNamespaceOption = Annotated[str, typer.Option("--executor-namespace", help="Namespace of the executor.")]


@app.command()
def init_certs(
    namespace: NamespaceOption = "toolmesh",
    executor_namespace: ExecutorNamespaceOption = "toolmesh-executor",
    renew_days: Annotated[int, typer.Option(min=0, max=89, help="Renew what ends within these days.")] = 30,
) -> None:
    """Issue missing certificates as secrets.

    \b
    Example:
      toolmesh deploy init-certs
    """
    from localmesh.deploy.init_certs import init_certificates
    from localmesh.deploy.secret_store import KubernetesSecrets

    namespaces = Namespaces(namespace, executor_namespace)
    issued = init_certificates(KubernetesSecrets(), namespaces, renew_before=timedelta(days=renew_days))
    typer.echo(f"issued: {', '.join(issued) or 'none'}")


@app.command()
def init_secrets(
    namespace: NamespaceOption = "toolmesh",
    executor_namespace: ExecutorNamespaceOption = "toolmesh-executor",
    database: Annotated[str, typer.Option(help="PostgreSQL as host:port; its URLs are made too.")] = "",
    redis: Annotated[str, typer.Option(help="Valkey as host:port; its users are made too.")] = "",
    stores_ca: Annotated[
        Path | None,
        typer.Option(
            help="Certificates of the servers' authorities: all URLs of these servers, also those that exist, use TLS."
        ),
    ] = None,
) -> None:
    """Create missing keys and passwords as secrets.

    \b
    Examples:
      toolmesh deploy init-secrets --database postgres.toolmesh:5432 --redis valkey.toolmesh:6379
      toolmesh deploy init-secrets --database db.internal:5432 --redis cache.internal:6380 --stores-ca stores-ca.pem
    """
    from localmesh.deploy.init_secrets import init_database_urls, init_keys, init_redis_urls
    from localmesh.deploy.secret_store import KubernetesSecrets

    authority = _authorities(stores_ca) if stores_ca else b""
    if authority and not (database or redis):
        raise typer.BadParameter("name the servers too, by --database, --redis or both", param_hint="--stores-ca")
    store, namespaces = KubernetesSecrets(), Namespaces(namespace, executor_namespace)
    init_keys(store, namespaces)
    if database:
        init_database_urls(store, namespaces, database, authority)
    if redis:
        init_redis_urls(store, namespaces, redis, authority)
    typer.echo("all secrets exist")


def _authorities(file: Path) -> bytes:
    """Return certificates in PEM. What else the file has, such as a key, is not in it."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    try:
        certificates = x509.load_pem_x509_certificates(file.read_bytes())
    except (OSError, ValueError):
        raise typer.BadParameter(f"{file} is no file with certificates in PEM", param_hint="--stores-ca") from None
    return b"".join(each.public_bytes(Encoding.PEM) for each in certificates)


@app.command()
def init_db(
    namespace: NamespaceOption = "toolmesh", executor_namespace: ExecutorNamespaceOption = "toolmesh-executor"
) -> None:
    """Create the database, its roles and schemas.

    \b
    Example:
      toolmesh deploy init-db
    """
    from localmesh.deploy.init_db import InitDatabaseError, init_database
    from localmesh.deploy.secret_store import KubernetesSecrets

    try:
        init_database(KubernetesSecrets(), Namespaces(namespace, executor_namespace))
    except InitDatabaseError as error:
        typer.echo(f"init-db: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo("database, roles and schemas exist")


@app.command()
def render_envoy(
    template: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="Envoy's template.")],
    output: Annotated[Path, typer.Option(help="The file to write.")],
    node_id: Annotated[str, typer.Option(envvar="NODE_ID", help="Name of this Envoy.")],
    trust_domain: Annotated[str, typer.Option(envvar="TOOLMESH_TRUST_DOMAIN")] = "toolmesh.local",
    issuer: Annotated[str, typer.Option(envvar="TOOLMESH_ISSUER")] = "https://authz.toolmesh.local",
    audience: Annotated[str, typer.Option(envvar="TOOLMESH_AUDIENCE")] = "toolmesh",
    max_token_lifetime: Annotated[int, typer.Option(envvar="TOOLMESH_MAX_TOKEN_LIFETIME")] = 86_400,
    rate: Annotated[int, typer.Option(envvar="TOOLMESH_EDGE_RATE", help="Calls a second of one subject.")] = 2000,
    burst: Annotated[int, typer.Option(envvar="TOOLMESH_EDGE_BURST")] = 4000,
    allowed_origins: Annotated[
        str, typer.Option(envvar="ALLOWED_ORIGINS", help="Expression for web pages that may call.")
    ] = "https://toolmesh[.]invalid",
    otlp_endpoint: Annotated[str, typer.Option(envvar="TOOLMESH_OTLP_ENDPOINT")] = "",
    namespace: NamespaceOption = "toolmesh",
    executor_namespace: ExecutorNamespaceOption = "toolmesh-executor",
) -> None:
    """Write the configuration of Envoy for a pod.

    \b
    Example:
      toolmesh deploy render-envoy --template deploy/envoy/envoy.yaml --output envoy.yaml --node-id edge-0
    """
    from localmesh.deploy.render_envoy import EdgeSettings, render_envoy

    settings = EdgeSettings(
        node_id=node_id,
        namespaces=Namespaces(namespace, executor_namespace),
        trust_domain=trust_domain,
        issuer=issuer,
        audience=audience,
        max_token_lifetime=max_token_lifetime,
        rate_per_second=rate,
        rate_burst=burst,
        allowed_origins=allowed_origins,
        otlp_endpoint=otlp_endpoint,
    )
    output.write_text(render_envoy(template.read_text(), settings))


@app.command()
def place_profiles(
    source: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="Folder with the profiles.")],
    target: Annotated[Path, typer.Argument(help="`seccomp` of the kubelet's folder.")],
    every: Annotated[float, typer.Option(min=0, help="Seconds until they are looked at again; 0 for once.")] = 0,
) -> None:
    """Put the seccomp profiles of the executor on a node.

    \b
    Example:
      toolmesh deploy place-profiles deploy/seccomp /var/lib/kubelet/seccomp
    """
    from localmesh.deploy.place_profiles import place_profiles

    if not target.is_dir():
        raise typer.BadParameter(f"there is no folder {target}", param_hint="TARGET")
    while True:
        for name in place_profiles(source, target):
            typer.echo(f"placed {name}")
        if not every:
            return
        time.sleep(every)
