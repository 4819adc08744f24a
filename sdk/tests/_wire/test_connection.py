"""Targets, and the three ways to a mesh: plaintext on this machine, TLS, mutual TLS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from toolmesh.executor.v1 import executor_service_pb2
from toolmesh_sdk import Tls, UpstreamFailureError
from toolmesh_sdk._wire.connection import parse_endpoint

DONE = executor_service_pb2.InvokeResponse()


@pytest.mark.parametrize(
    ("target", "address", "secure"),
    [
        ("127.0.0.1:8080", "127.0.0.1:8080", False),
        ("localhost:8080", "localhost:8080", False),
        ("[::1]:8080", "[::1]:8080", False),
        ("unix:/tmp/edge.sock", "unix:/tmp/edge.sock", False),
        ("http://mesh.example:8080/", "mesh.example:8080", False),
        ("grpc://mesh.example", "mesh.example:80", False),
        ("https://mesh.example", "mesh.example:443", True),
        ("grpcs://[2001:db8::1]:8443", "[2001:db8::1]:8443", True),
    ],
)
def test_a_target_says_where_and_how(target: str, address: str, secure: bool) -> None:
    endpoint = parse_endpoint(target)
    assert (endpoint.address, endpoint.tls is not None) == (address, secure)


def test_certificates_make_a_bare_target_secure() -> None:
    assert parse_endpoint("mesh.example:8443", Tls(server_name="edge")).tls == Tls(server_name="edge")


@pytest.mark.parametrize("target", ["mesh.example:8080", "ftp://mesh.example", "https://", "http://h:1/rpc", ""])
def test_what_is_ambiguous_or_no_target_is_refused(target: str) -> None:
    with pytest.raises(ValueError):
        parse_endpoint(target)


@pytest.mark.parametrize("target", ["127.0.0.1:99999", "127.0.0.1:x", "127.0.0.1:"])
def test_a_port_that_is_none_does_not_become_another(target: str) -> None:
    for tls in (None, Tls()):
        with pytest.raises(ValueError):
            parse_endpoint(target, tls)


def test_plaintext_and_certificates_contradict_each_other() -> None:
    with pytest.raises(ValueError):
        parse_endpoint("http://mesh.example", Tls())


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine() -> None:
    assert ("grpc.enable_http_proxy", 0) in parse_endpoint("127.0.0.1:1").options()
    assert ("grpc.enable_http_proxy", 0) not in parse_endpoint("https://mesh.example").options()


async def test_mutual_tls_shows_who_calls(drive: Any, mesh: Any, serve: Callable[..., str], pki: Any) -> None:
    mesh.answer("Invoke", DONE)
    own = pki.of("orchestrator")
    tls = Tls(pki.ca, str(own.cert), own.key.read_bytes(), server_name="executor")
    await drive(serve("executor"), tls=tls).do("call", "echo")
    assert "spiffe://toolmesh.local/orchestrator" in mesh.seen[0].peer


async def test_tls_to_an_edge_needs_no_certificate_of_ours(
    drive: Any, mesh: Any, serve: Callable[..., str], pki: Any
) -> None:
    mesh.answer("Invoke", DONE)
    address = serve("edge", client_certificate=False)
    await drive(f"https://{address}", tls=Tls(pki.ca)).do("call", "echo")
    assert len(mesh.seen) == 1


@pytest.mark.parametrize("flaw", ["no certificate", "another name", "another authority"])
async def test_what_cannot_be_proved_is_not_called(
    flaw: str, drive: Any, mesh: Any, serve: Callable[..., str], pki: Any
) -> None:
    mesh.answer("Invoke", DONE)
    own = pki.of("orchestrator")
    tls = {
        "no certificate": Tls(pki.ca, server_name="executor"),
        "another name": Tls(pki.ca, own.cert, own.key, server_name="audit"),
        "another authority": Tls(None, own.cert, own.key, server_name="executor"),
    }[flaw]
    with pytest.raises(UpstreamFailureError):
        await drive(serve("executor"), tls=tls).do("call", "echo")
    assert mesh.seen == []
