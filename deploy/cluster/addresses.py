"""Names, networks and addresses of the cluster. All are inside of the node's own network namespace."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

NODE = "node1"
NODE_ADDRESS = IPv4Address("172.30.0.1")
NODE_PREFIX = 24
# Leads nowhere. Without a default route the addresses of services are unreachable from the node itself.
GATEWAY_ADDRESS = IPv4Address("172.30.0.254")
API_PORT = 6443
PODS = IPv4Network("10.244.0.0/24")
SERVICES = IPv4Network("10.96.0.0/16")
API_SERVICE = SERVICES[1]
DNS_SERVICE = SERVICES[10]
DOMAIN = "cluster.local"
LOOPBACK = IPv4Address("127.0.0.1")


def api_url(address: IPv4Address = NODE_ADDRESS, port: int = API_PORT) -> str:
    """Returns the URL of the API server at an address."""
    return f"https://{address}:{port}"
