"""The list of parts: who waits for whom, and what each service is given."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from localmesh import composition
from localmesh.composition import SERVICES, Mesh
from localmesh.ports import USUAL_PORTS
from localmesh.process.child import RunAs
from localmesh.process.part import Part
from localmesh.settings import Settings
from localmesh.state.keys import ensure_secrets
from localmesh.state.pki import Pki
from localmesh.state.secrets import DATABASE_ROLES, SCHEMA_OWNERS, read_secrets
from localmesh.state.state import State

PEERS = {
    "authz": set(),
    "audit": {"authz"},
    "registry": {"authz", "audit"},
    "approval": {"authz", "audit"},
    "executor": {"registry", "authz", "audit", "approval"},
    "gateway": {"executor", "registry", "authz", "audit", "approval"},
}
# Peers that start later: what a service has for them waits in its database meanwhile.
LATER = {"authz": {"audit"}}


@pytest.fixture
def parts(state: State) -> Mapping[str, Part]:
    ensure_secrets(state)
    settings = Settings(otlp_endpoint="http://127.0.0.1:4317", drain_seconds=3)
    mesh = Mesh(state, USUAL_PORTS, read_secrets(state), Pki(state.pki), settings, RunAs.OURSELVES)
    return {part.name: part for part in composition.load(composition.DEFAULT)(mesh)}


def test_the_order_is_the_data_then_the_services_then_the_edge(parts: Mapping[str, Part]) -> None:
    assert list(parts) == ["postgres", "valkey", *SERVICES, "envoy"]


def test_nothing_waits_for_what_comes_after_it(parts: Mapping[str, Part]) -> None:
    earlier: set[str] = set()
    for part in parts.values():
        assert set(part.after) <= earlier
        earlier.add(part.name)


def test_a_service_stops_before_those_it_calls(parts: Mapping[str, Part]) -> None:
    order = list(parts)
    for name, peers in PEERS.items():
        assert all(order.index(peer) < order.index(name) for peer in peers)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_gets_the_contract_and_the_peers_it_needs(parts: Mapping[str, Part], name: str) -> None:
    environment = parts[name].launch.environment
    given = {variable for variable in environment if variable.startswith("TOOLMESH_")}
    addresses = {f"TOOLMESH_{peer.upper()}_ADDRESS" for peer in PEERS[name] | LATER.get(name, set())}
    assert {variable for variable in given if variable.endswith("_ADDRESS")} == addresses
    assert ("TOOLMESH_DATABASE_URL" in given) == (name in DATABASE_ROLES)
    assert "TOOLMESH_MIGRATION_DATABASE_URL" not in given
    assert ("TOOLMESH_REDIS_URL" in given) == (name != "approval")
    assert ("TOOLMESH_CONSOLE_KEYS" in given) == (name == "gateway")
    assert ("TOOLMESH_RELAY" in given) == (name == "audit")
    assert ("TOOLMESH_SIGNING_KEYS" in given) == (name == "authz")
    assert ("TOOLMESH_SEALING_KEYS" in given) == (name in ("authz", "executor"))
    assert ("TOOLMESH_CHECKPOINT_KEY" in given) == (name == "audit")
    assert environment["TOOLMESH_LISTEN"] == parts[name].address
    assert environment["TOOLMESH_OPS_LISTEN"] == parts[name].ops
    assert environment["TOOLMESH_OTLP_ENDPOINT"] == "http://127.0.0.1:4317"


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_gets_longer_to_stop_than_it_takes_to_drain(parts: Mapping[str, Part], name: str) -> None:
    drain = float(parts[name].launch.environment["TOOLMESH_DRAIN_SECONDS"])
    assert (drain, parts[name].stop_seconds) == (3, 5)


def test_no_process_is_started_with_the_password_of_a_schemas_owner(parts: Mapping[str, Part], state: State) -> None:
    passwords = [read_secrets(state).database[owner] for owner in SCHEMA_OWNERS.values()]
    launches = [part.launch for part in parts.values()]
    shown = "".join(f"{launch.argv} {dict(launch.environment)}" for launch in launches)
    assert passwords
    assert not [password for password in passwords if password in shown]


def test_no_printed_part_shows_a_secret(parts: Mapping[str, Part], state: State) -> None:
    secrets = read_secrets(state)
    assert not any(
        secret in repr(parts) for secret in (secrets.valkey, *secrets.valkey_users.values(), *secrets.database.values())
    )
