"""The node's network: an interface of its own in its own network namespace, with no way out."""

from __future__ import annotations

import subprocess
from pathlib import Path

from deploy.cluster.addresses import GATEWAY_ADDRESS, NODE_ADDRESS, NODE_PREFIX

INTERFACE, _PEER = "node0", "node0-peer"
# Addresses that answer no one; the route through it only makes the kernel choose a source address.
_GATEWAY_LINK = "02:00:00:00:00:fe"
_SETTINGS = ("net/ipv4/ip_forward", "net/bridge/bridge-nf-call-iptables")


def commands() -> list[list[str]]:
    """Returns the commands that set the interface up. A pair of them, because not every kernel has dummy devices."""
    lines = [
        "link set lo up",
        f"link add {INTERFACE} type veth peer name {_PEER}",
        f"addr add {NODE_ADDRESS}/{NODE_PREFIX} dev {INTERFACE}",
        f"link set {INTERFACE} up",
        f"link set {_PEER} up",
        f"route add default via {GATEWAY_ADDRESS} dev {INTERFACE}",
        f"neigh add {GATEWAY_ADDRESS} lladdr {_GATEWAY_LINK} dev {INTERFACE} nud permanent",
    ]
    return [["ip", *line.split()] for line in lines]


def set_up_network() -> None:
    """Sets the interface up, and lets the node route between pods."""
    for command in commands():
        subprocess.run(command, check=True)
    for name in _SETTINGS:
        (Path("/proc/sys") / name).write_text("1\n")
