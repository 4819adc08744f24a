"""Renders kubeconfig files: where the API server is, whose certificate it must show, and who the caller is."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from deploy.cluster.addresses import api_url

CLUSTER = "toolmesh"
# The components that speak to the API server from inside of the node.
USERS = ("admin", "controller-manager", "scheduler", "kubelet", "kube-proxy", "netpol")


def render_kubeconfig(user: str, pki: Mapping[str, bytes], server: str | None = None) -> str:
    """Returns the kubeconfig of a user whose certificate and key are among the files. JSON is YAML."""
    cluster = {"server": server or api_url(), "certificate-authority-data": _base64(pki["ca.crt"])}
    credentials = {
        "client-certificate-data": _base64(pki[f"{user}.crt"]),
        "client-key-data": _base64(pki[f"{user}.key"]),
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CLUSTER, "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": CLUSTER, "context": {"cluster": CLUSTER, "user": user}}],
        "current-context": CLUSTER,
    }
    return json.dumps(document, indent=2) + "\n"


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
