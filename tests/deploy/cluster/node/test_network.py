"""The node's interface: no command of it names anything of the machine."""

from __future__ import annotations

from deploy.cluster.addresses import API_SERVICE, DNS_SERVICE, GATEWAY_ADDRESS, NODE_ADDRESS, PODS, SERVICES
from deploy.cluster.node.network import INTERFACE, commands


def test_the_node_has_an_interface_with_a_default_route() -> None:
    lines = [" ".join(command) for command in commands()]
    assert f"ip addr add {NODE_ADDRESS}/24 dev {INTERFACE}" in lines
    assert f"ip route add default via {GATEWAY_ADDRESS} dev {INTERFACE}" in lines


def test_the_networks_are_apart() -> None:
    assert not PODS.overlaps(SERVICES)
    assert NODE_ADDRESS not in PODS
    assert {API_SERVICE, DNS_SERVICE} <= {SERVICES[1], SERVICES[10]}
