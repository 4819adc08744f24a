"""Command lines of the node's parts, in the order of their start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.cluster.addresses import API_PORT, DOMAIN, NODE, NODE_ADDRESS, PODS, SERVICES
from deploy.cluster.state_folder import StateFolder

ETCD = "http://127.0.0.1:2379"
# Kernel settings of the whole machine that the kubelet writes unless they have these values. It is shown files that do.
KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


@dataclass(frozen=True)
class Component:
    """A process that the node keeps running."""

    name: str
    command: Sequence[str]


def control_plane(state: StateFolder) -> list[Component]:
    """Returns what must run before the node's agents: store, container runtime, API server, controllers, scheduler."""
    return [
        Component("etcd", _etcd(state)),
        Component("containerd", ["containerd", "--config", str(state.config / "containerd.toml")]),
        Component("kube-apiserver", _api_server(state.pki)),
        Component("kube-controller-manager", _controller_manager(state.pki)),
        Component("kube-scheduler", ["kube-scheduler", *_logged_in(state.pki, "scheduler"), "--leader-elect=false"]),
    ]


def node_agents(state: StateFolder, settings: Path) -> list[Component]:
    """Returns what serves pods on the node. `settings` is the folder of the files that the kubelet is shown."""
    kubeconfig = state.pki / "netpol.kubeconfig"
    netpol = ["netpol", f"--kubeconfig={kubeconfig}", f"--node={NODE}", f"--service-cluster-ip-range={SERVICES}"]
    return [
        Component("kubelet", _with_settings(settings, _kubelet(state))),
        Component("kube-proxy", ["kube-proxy", f"--config={state.config / 'kube-proxy.yaml'}"]),
        Component("netpol", netpol),
    ]


def _etcd(state: StateFolder) -> list[str]:
    # The cluster ends with the machine's next start at the latest, so nothing is lost by not waiting for the disk.
    listen = [f"--listen-client-urls={ETCD}", f"--advertise-client-urls={ETCD}"]
    peers = "--listen-peer-urls=http://127.0.0.1:2380"
    return ["etcd", f"--data-dir={state.etcd}", *listen, peers, "--unsafe-no-fsync"]


def _api_server(pki: Path) -> list[str]:
    return [
        "kube-apiserver",
        f"--etcd-servers={ETCD}",
        f"--advertise-address={NODE_ADDRESS}",
        f"--secure-port={API_PORT}",
        f"--service-cluster-ip-range={SERVICES}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--anonymous-auth=false",
        "--allow-privileged=true",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        f"--kubelet-client-certificate={pki / 'apiserver-kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'apiserver-kubelet-client.key'}",
        "--kubelet-preferred-address-types=InternalIP,Hostname",
        f"--service-account-issuer=https://kubernetes.default.svc.{DOMAIN}",
        f"--service-account-key-file={pki / 'sa.pub'}",
        f"--service-account-signing-key-file={pki / 'sa.key'}",
        *_aggregation(pki),
    ]


def _aggregation(pki: Path) -> list[str]:
    """Returns the options by which the API server passes requests on to the metrics server."""
    return [
        f"--requestheader-client-ca-file={pki / 'front-proxy-ca.crt'}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={pki / 'front-proxy-client.crt'}",
        f"--proxy-client-key-file={pki / 'front-proxy-client.key'}",
        "--enable-aggregator-routing=true",
    ]


def _controller_manager(pki: Path) -> list[str]:
    return [
        "kube-controller-manager",
        *_logged_in(pki, "controller-manager"),
        f"--service-account-private-key-file={pki / 'sa.key'}",
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--cluster-signing-cert-file={pki / 'ca.crt'}",
        f"--cluster-signing-key-file={pki / 'ca.key'}",
        f"--cluster-cidr={PODS}",
        f"--service-cluster-ip-range={SERVICES}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        # A person or a test that watches the autoscaler should not wait for minutes.
        "--horizontal-pod-autoscaler-sync-period=5s",
        "--horizontal-pod-autoscaler-downscale-stabilization=15s",
        "--horizontal-pod-autoscaler-initial-readiness-delay=5s",
        "--horizontal-pod-autoscaler-cpu-initialization-period=15s",
    ]


def _logged_in(pki: Path, user: str) -> list[str]:
    kubeconfig = pki / f"{user}.kubeconfig"
    uses = ("--kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig")
    return [*(f"{use}={kubeconfig}" for use in uses), "--bind-address=127.0.0.1"]


def _kubelet(state: StateFolder) -> list[str]:
    return [
        "kubelet",
        f"--config={state.config / 'kubelet.yaml'}",
        f"--kubeconfig={state.pki / 'kubelet.kubeconfig'}",
        f"--hostname-override={NODE}",
        f"--node-ip={NODE_ADDRESS}",
    ]


def _with_settings(settings: Path, command: Sequence[str]) -> list[str]:
    """Returns a command that runs another with files over the kernel's settings, in a mount namespace of its own.

    With any mount over the node's own /proc the kernel would refuse a new /proc to pods with user namespaces.
    """
    binds = [f"mount --bind {settings / name.replace('/', '.')} /proc/sys/{name}" for name in KERNEL_SETTINGS]
    script = "; ".join(["set -e", "mount --make-private /proc", *binds, 'exec "$@"'])
    return ["unshare", "--mount", "--propagation", "unchanged", "sh", "-c", script, "sh", *command]
