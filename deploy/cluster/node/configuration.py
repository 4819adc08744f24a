"""Renders the configuration files of the node's parts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.cluster.addresses import DNS_SERVICE, DOMAIN, NODE, PODS
from deploy.cluster.state_folder import StateFolder

CONTAINERD_SOCKET = Path("/run/containerd/containerd.sock")
PAUSE_IMAGE = "toolmesh.local/cluster/pause:1"
BRIDGE = "cni0"
# Plugins that the node does not use, some of which fail where their tools are missing.
_DISABLED = (
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.blockfile",
    "io.containerd.snapshotter.v1.erofs",
    "io.containerd.tracing.processor.v1.otlp",
    "io.containerd.internal.v1.tracing",
    "io.containerd.nri.v1.nri",
    # Makes /opt/containerd on the machine.
    "io.containerd.internal.v1.opt",
)
_RUNTIMES = "plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes"


def render_files(state: StateFolder, cache: Path, *, open_files: int) -> Mapping[str, str]:
    """Returns the content of each file of the `config` folder."""
    return {
        "kubelet.yaml": kubelet(state, open_files),
        "kube-proxy.yaml": kube_proxy(state),
        "containerd.toml": containerd(state, cache),
        "cni/10-toolmesh.conflist": network(),
        "runsc.toml": '[runsc_config]\n  platform = "systrap"\n',
        # Nothing outside of the cluster has a name in it.
        "resolv.conf": "",
    }


def kubelet(state: StateFolder, open_files: int) -> str:
    """Returns the kubelet's configuration."""
    return _yaml(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(state.pki / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(state.pki / "kubelet-server.crt"),
            "tlsPrivateKeyFile": str(state.pki / "kubelet-server.key"),
            "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
            "cgroupDriver": "cgroupfs",
            # Since 1.35 the kubelet refuses version 1 unless this is said.
            "failCgroupV1": False,
            "failSwapOn": False,
            # A kernel setting that the node does not show as the kubelet wants it ends the kubelet: it changes none.
            "protectKernelDefaults": True,
            "clusterDNS": [str(DNS_SERVICE)],
            "clusterDomain": DOMAIN,
            "resolvConf": str(state.config / "resolv.conf"),
            # Only CAP_SYS_RESOURCE may lower a score or raise a hard limit, and a machine may withhold it.
            "oomScoreAdj": 0,
            "maxOpenFiles": open_files,
            # No registry could give back an image that was collected.
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
                "nodefs.inodesFree": "1%",
                "imagefs.inodesFree": "1%",
            },
            "nodeStatusUpdateFrequency": "5s",
            "serializeImagePulls": False,
        }
    )


def kube_proxy(state: StateFolder) -> str:
    """Returns kube-proxy's configuration. It leaves the machine's connection table as it is."""
    return _yaml(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(state.pki / "kube-proxy.kubeconfig")},
            "clusterCIDR": str(PODS),
            "mode": "nftables",
            "hostnameOverride": NODE,
            "oomScoreAdj": 0,
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }
    )


def network() -> str:
    """Returns the pod network: a bridge on the node, with addresses from one range."""
    addresses = {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": str(PODS)}]]}
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isDefaultGateway": True,
        "hairpinMode": True,
        "ipMasq": False,
        "ipam": addresses,
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return _yaml({"cniVersion": "1.0.0", "name": "toolmesh", "plugins": [bridge, ports]})


def containerd(state: StateFolder, cache: Path) -> str:
    """Returns containerd's configuration, with the runtimes of runc and gVisor.

    One invalid table of a runtime would keep the whole Kubernetes interface of containerd from loading.
    """
    runtimes = [f"[{_RUNTIMES}.runc]", 'runtime_type = "io.containerd.runc.v2"']
    runtimes += [f"[{_RUNTIMES}.runc.options]", "SystemdCgroup = false"]
    runtimes += [f"[{_RUNTIMES}.runsc]", 'runtime_type = "io.containerd.runsc.v1"']
    runtimes += [f"[{_RUNTIMES}.runsc.options]", 'TypeUrl = "io.containerd.runsc.v1.options"']
    runtimes += [f"ConfigPath = {json.dumps(str(state.config / 'runsc.toml'))}"]
    return "\n".join([*_containerd_head(state, cache), *runtimes, ""])


def _containerd_head(state: StateFolder, cache: Path) -> list[str]:
    return [
        "version = 3",
        f"root = {json.dumps(str(state.containerd))}",
        'state = "/run/containerd"',
        "oom_score = 0",
        f"disabled_plugins = {json.dumps(_DISABLED)}",
        "[grpc]",
        f"address = {json.dumps(str(CONTAINERD_SOCKET))}",
        "[plugins.'io.containerd.cri.v1.images']",
        'snapshotter = "overlayfs"',
        "[plugins.'io.containerd.cri.v1.images'.pinned_images]",
        f"sandbox = {json.dumps(PAUSE_IMAGE)}",
        "[plugins.'io.containerd.cri.v1.runtime']",
        "restrict_oom_score_adj = true",
        "disable_apparmor = true",
        # Name servers and web servers bind low ports without a capability.
        "enable_unprivileged_ports = true",
        "[plugins.'io.containerd.cri.v1.runtime'.cni]",
        f"bin_dirs = [{json.dumps(str(cache / 'bin'))}]",
        f"conf_dir = {json.dumps(str(state.config / 'cni'))}",
        "[plugins.'io.containerd.cri.v1.runtime'.containerd]",
        'default_runtime_name = "runc"',
    ]


def _yaml(document: dict[str, Any]) -> str:
    # JSON is YAML, and needs no writer of its own.
    return json.dumps(document, indent=2) + "\n"
