"""The first process of the node, inside of its namespaces: sets the node up and keeps its components running.

When it ends, however that happens, the kernel ends every process of the node with it; mounts and devices go too.
"""

from __future__ import annotations

import argparse
import os
import socket
import ssl
import threading
import time
import urllib.request
from pathlib import Path

from deploy.cluster.addresses import API_PORT, NODE, NODE_ADDRESS, api_url
from deploy.cluster.node.components import control_plane, node_agents
from deploy.cluster.node.forwarder import start_forwarder
from deploy.cluster.node.mounts import SETTINGS, mount_all
from deploy.cluster.node.network import set_up_network
from deploy.cluster.node.supervisor import Supervisor
from deploy.cluster.state_folder import StateFolder

_PAUSE_SECONDS = 0.2


def main() -> None:
    """Runs the node. Never returns."""
    arguments = _arguments()
    state = StateFolder(arguments.state)
    socket.sethostname(NODE)
    mount_all(state, arguments.hierarchy)
    set_up_network()
    os.environ["PATH"] = f"{arguments.cache / 'bin'}:{state.programs}:{os.environ['PATH']}"
    start_forwarder(socket.socket(fileno=arguments.listener), str(NODE_ADDRESS), API_PORT)
    supervisor = Supervisor(state.log)
    supervisor.start(control_plane(state))
    threading.Thread(target=_start_agents, args=(supervisor, state), daemon=True).start()
    supervisor.run()


def _start_agents(supervisor: Supervisor, state: StateFolder) -> None:
    """Starts the agents when the API server answers: before that each would only end and be started again."""
    context = ssl.create_default_context(cafile=str(state.pki / "ca.crt"))
    context.load_cert_chain(state.pki / "admin.crt", state.pki / "admin.key")
    while not _is_ready(context):
        time.sleep(_PAUSE_SECONDS)
    supervisor.start(node_agents(state, SETTINGS))


def _is_ready(context: ssl.SSLContext) -> bool:
    try:
        with urllib.request.urlopen(f"{api_url()}/readyz", context=context, timeout=5):  # noqa: S310
            return True
    except OSError:
        return False


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m deploy.cluster.node.first_process")
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--listener", type=int, required=True, help="listening socket of the machine's loopback")
    parser.add_argument("--hierarchy", action="append", default=[], help="mount options of control groups")
    return parser.parse_args()


if __name__ == "__main__":
    main()
