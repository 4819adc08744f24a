"""Calls that need the operator's certificate: minting and introspecting tokens.

`python -m toolmesh_sdk.admin mint ...` prints only the token. The `runtime` document holds the connection data: `ca`,
`operator.cert`, `operator.key` and the address of the service `authz`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Required, TypedDict, Unpack

from google.protobuf.duration_pb2 import Duration
from toolmesh.authz.v1 import authz_service_pb2
from toolmesh.authz.v1.authz_service_pb2_grpc import AuthzServiceStub

from toolmesh_sdk._wire.connection import Tls
from toolmesh_sdk._wire.transport import ClientOptions, Transport
from toolmesh_sdk.errors import ToolmeshError
from toolmesh_sdk.token_request import (
    Bounds,
    argument_constraint_messages,
    budget_message,
    confirmation_message,
    tool_grants,
)

TIMEOUT = 10.0


class TokenWishes(TypedDict, total=False):
    """The authority of a new token. `bounds` adds resources, arguments, a budget, a session and a proof."""

    sub: Required[str]
    tools: Required[Iterable[str]]
    """Patterns such as `arith*`, with a version constraint as `echo@^1.2`."""
    scopes: Required[Iterable[str]]
    ttl_seconds: Required[int]
    tenant: str
    groups: Iterable[str]
    trust: int
    audience: Iterable[str]
    depth: int | None
    bounds: Bounds | None


def mint_token(runtime: Mapping[str, Any], *, timeout: float = TIMEOUT, **wishes: Unpack[TokenWishes]) -> str:
    """Return a new user-tier token of the local mesh.

    Raises ToolmeshError, and KeyError if the runtime document is incomplete.
    """
    with operator(runtime) as transport:
        return issue_token(transport, timeout=timeout, **wishes)


def issue_token(transport: Transport, *, timeout: float = TIMEOUT, **wishes: Unpack[TokenWishes]) -> str:
    """Return a new user-tier token from the authz that a transport reaches with the operator's certificate."""
    limits = wishes.get("bounds") or Bounds()
    request = authz_service_pb2.IssueTokenRequest(
        subject=wishes["sub"],
        tools=tool_grants(wishes["tools"]),
        scopes=list(wishes["scopes"]),
        lifetime=Duration(seconds=wishes["ttl_seconds"]),
        tenant=wishes.get("tenant", ""),
        groups=list(wishes.get("groups", ())),
        trust_level=wishes.get("trust", 0),
        audiences=list(wishes.get("audience", ())),
        resource_constraints=list(limits.get("resources", ())),
        argument_constraints=argument_constraint_messages(limits.get("arguments", {})),
        budget=budget_message(limits),
        delegation_depth=wishes.get("depth"),
        confirmation=confirmation_message(limits.get("proof", "")),
        session_id=limits.get("session", ""),
    )
    stub = AuthzServiceStub(transport.channel)
    # A retry may mint a second token with the same authority, which is harmless.
    return transport.unary(stub.IssueToken, request, timeout, repeatable=True).token


def introspect_token(
    transport: Transport, token: str, *, timeout: float = TIMEOUT
) -> authz_service_pb2.IntrospectTokenResponse:
    """Return whether the mesh accepts a token, and why not. Raises ToolmeshError."""
    request = authz_service_pb2.IntrospectTokenRequest(token=token)
    stub = AuthzServiceStub(transport.channel)
    return transport.unary(stub.IntrospectToken, request, timeout, repeatable=True)


def service_address(runtime: Mapping[str, Any], name: str) -> str:
    """Return the address of a service. Raises KeyError if the document has none."""
    for service in runtime["services"]:
        if service["name"] == name and service.get("address"):
            return str(service["address"])
    raise KeyError(f"address of {name}")


@contextmanager
def operator(runtime: Mapping[str, Any], *, timeout: float = TIMEOUT) -> Iterator[Transport]:
    """Connect to authz with the operator's certificate. Raises KeyError and OSError if the document is incomplete."""
    identity = runtime["operator"]
    tls = Tls(runtime["ca"], identity["cert"], identity["key"], server_name="authz")
    transport = Transport(service_address(runtime, "authz"), tls, ClientOptions(timeout=timeout))
    try:
        yield transport
    finally:
        transport.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 with the token on stdout, 1 with the reason on stderr."""
    options = _parser().parse_args(arguments)
    try:
        runtime = json.loads(options.runtime.read_bytes())
        token = mint_token(
            runtime,
            sub=options.sub,
            tools=_split_list(options.tools),
            scopes=_split_list(options.scopes),
            ttl_seconds=options.ttl,
            tenant=options.tenant,
            groups=_split_list(options.groups),
            trust=options.trust,
            audience=_split_list(options.audience),
        )
    except ToolmeshError as error:
        return _fail(f"{error} {error.metadata.get('transport', '')}".rstrip())
    except KeyError as error:
        return _fail(f"{options.runtime} is incomplete: {error}")
    except (OSError, ValueError) as error:
        return _fail(str(error))
    sys.stdout.write(token + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m toolmesh_sdk.admin", description="Operator calls to a mesh.")
    mint = parser.add_subparsers(dest="command", required=True).add_parser("mint", help="mint a token and print it")
    mint.add_argument("--runtime", type=Path, required=True, help="the runtime.json of the mesh")
    mint.add_argument("--sub", required=True, help="the subject of the token, a DID")
    mint.add_argument("--tools", default="", help="patterns, separated by commas")
    mint.add_argument("--scopes", default="", help="scopes, separated by commas")
    mint.add_argument("--ttl", type=int, default=3600, help="lifetime in seconds")
    mint.add_argument("--tenant", default="")
    mint.add_argument("--groups", default="", help="groups, separated by commas")
    mint.add_argument("--trust", type=int, default=0, help="0 to 100")
    mint.add_argument("--audience", default="", help="audiences, separated by commas")
    return parser


def _split_list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _fail(reason: str) -> int:
    sys.stderr.write(f"no token: {reason}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
