"""Assigns a port to each part: the default one, or the next free one."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator, Mapping

from localmesh.settings import LOOPBACK
from localmesh.state.files import read_json, write_json
from localmesh.state.state import State

# A step of ten keeps a moved port clear of the usual port of its neighbour.
STEP = 10

# None is among 32768 to 60999, of which Linux gives clients theirs: a connection could take one before its server does.
USUAL_PORTS: Mapping[str, int] = {
    "edge": 8080,
    "edge-tls": 8443,
    "envoy": 9901,
    "postgres": 25432,
    "valkey": 63790,
    "registry": 7101,
    "authz": 7102,
    "executor": 7103,
    "approval": 7104,
    "audit": 7105,
    "gateway": 7106,
    "registry-ops": 7201,
    "authz-ops": 7202,
    "executor-ops": 7203,
    "approval-ops": 7204,
    "audit-ops": 7205,
    "gateway-ops": 7206,
}

# Between the usual ports of two replicas of a service: past the operator's ports of all services.
REPLICA_STEP = 200


def replica_name(service: str, number: int) -> str:
    """Returns the name of a service's part: `executor`, then `executor-2`."""
    return service if number == 1 else f"{service}-{number}"


def replica_names(ports: Iterable[str], service: str) -> list[str]:
    """Returns the parts of a service among the names of a mesh's ports."""
    numbered = re.compile(rf"{service}(-\d+)?")
    return [name for name in ports if numbered.fullmatch(name)]


def usual_ports(scale: Mapping[str, int]) -> dict[str, int]:
    """Returns the usual ports, with those of the replicas of each scaled service."""
    ports = dict(USUAL_PORTS)
    for service, count in scale.items():
        for number in range(2, count + 1):
            name, step = replica_name(service, number), (number - 1) * REPLICA_STEP
            ports[name] = USUAL_PORTS[service] + step
            ports[f"{name}-ops"] = USUAL_PORTS[f"{service}-ops"] + step
    return ports


class PortClaims:
    """The ports of one mesh. While it lives, no other mesh on this machine claims one of them.

    A port is claimed by binding an abstract Unix socket of its name: such names have the same scope as TCP ports (the
    network namespace), no owner and no file, and end with the process.
    """

    def __init__(self) -> None:
        self._claims: list[socket.socket] = []
        self.numbers: dict[str, int] = {}

    def claim(self, name: str, preferred: int) -> int:
        """Claims the preferred port, or the nearest free one above it."""
        for number in _candidates(preferred):
            claim = _claim(number)
            if claim is None:
                continue
            if not _is_free(number):
                claim.close()
                continue
            self._claims.append(claim)
            self.numbers[name] = number
            return number
        raise OSError(f"no free port for {name} near {preferred}")

    def release(self) -> None:
        for claim in self._claims:
            claim.close()
        self._claims.clear()


def claim_ports(state: State, usual: Mapping[str, int] = USUAL_PORTS) -> PortClaims:
    """Claims a port for every name, those of the last run first, and remembers the outcome."""
    remembered = read_json(state.ports_file)
    claims = PortClaims()
    for name, number in usual.items():
        last = remembered.get(name)
        claims.claim(name, last if isinstance(last, int) else number)
    write_json(state.ports_file, claims.numbers)
    return claims


def _candidates(preferred: int) -> Iterator[int]:
    yield from range(preferred, 65536, STEP)
    yield from range(preferred + 1, 65536)


def _claim(number: int) -> socket.socket | None:
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        claim.bind(f"\0toolmesh/port/{number}")
    except OSError:
        claim.close()
        return None
    return claim


def _is_free(number: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        # As servers do: a connection that merely lingers after its end does not count as taken.
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((LOOPBACK, number))
        except OSError:
            return False
    return True
