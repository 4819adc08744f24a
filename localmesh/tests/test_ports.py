from __future__ import annotations

import socket

import pytest

from localmesh.ports import STEP, USUAL_PORTS, PortClaims, claim_ports, usual_ports
from localmesh.settings import LOOPBACK
from localmesh.state.state import State


@pytest.fixture
def taken() -> socket.socket:
    return socket.create_server((LOOPBACK, 0))


def number(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def test_a_taken_port_is_stepped_around(taken: socket.socket) -> None:
    with taken:
        assert PortClaims().claim("edge", number(taken)) >= number(taken) + STEP


def test_two_meshes_that_start_together_never_get_the_same_port(taken: socket.socket) -> None:
    free = number(taken)
    taken.close()
    first, second = PortClaims(), PortClaims()
    assert first.claim("edge", free) != second.claim("edge", free)
    first.release()
    second.release()


def test_a_released_port_can_be_claimed_again(taken: socket.socket) -> None:
    free = number(taken)
    taken.close()
    first = PortClaims()
    claimed = first.claim("edge", free)
    first.release()
    assert PortClaims().claim("edge", claimed) == claimed


def test_every_part_gets_a_port_of_its_own_and_keeps_it(state: State) -> None:
    first = claim_ports(state)
    numbers = dict(first.numbers)
    assert numbers.keys() == USUAL_PORTS.keys()
    assert len(set(numbers.values())) == len(numbers)
    first.release()
    second = claim_ports(state)
    assert second.numbers == numbers
    second.release()


def test_a_remembered_port_that_is_taken_now_is_stepped_around(state: State, taken: socket.socket) -> None:
    with taken:
        claims = claim_ports(state, {"edge": number(taken)})
        assert claims.numbers["edge"] != number(taken)
    claims.release()


def test_no_client_is_given_the_usual_port_of_a_part() -> None:
    clients = range(32768, 61000)
    assert not [name for name, port in usual_ports({"executor": 9, "gateway": 9}).items() if port in clients]
