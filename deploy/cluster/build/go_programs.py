"""The Go programs of the node. Each module's `go.mod` and `go.sum` under `go/` pin all of its sources by digest."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.cluster.errors import ClusterError

MODULES = Path(__file__).resolve().parent.parent / "go"
KUBERNETES = "1.35.4"
_BUILD_SECONDS = 7200
# Settings of the caller that lead to sources; all other settings of Go would change the result.
_SOURCE_SETTINGS = ("GOPROXY", "GONOPROXY", "GOPRIVATE", "GOAUTH")
_CONTAINERD = "github.com/containerd/containerd/v2"
_CNI = "github.com/containernetworking/plugins/plugins"
AGENT_SANDBOX = "sigs.k8s.io/agent-sandbox"


@dataclass(frozen=True)
class GoProgram:
    """One program: the module that pins it, its package, and names by which it is started beside its own."""

    name: str
    module: str
    package: str
    version: str = ""
    stamps: Sequence[str] = ()
    tags: str = ""
    aliases: Sequence[str] = ()
    cgo: bool = False

    def command(self, target: Path) -> list[str]:
        """Returns the command that builds this program into a file."""
        link = ["-s", "-w", *(f"-X {stamp}" for stamp in self.stamps), *(["-extldflags -static"] if self.cgo else [])]
        tags = [f"-tags={self.tags}"] if self.tags else []
        flags = ["-trimpath", "-buildvcs=false", "-mod=readonly", *tags, f"-ldflags={' '.join(link)}"]
        return ["go", "build", *flags, f"-o={target}", self.package]


# The components report this version, by which kubectl and tests know what they speak to.
_KUBERNETES_STAMPS = (
    f"k8s.io/component-base/version.gitVersion=v{KUBERNETES}",
    "k8s.io/component-base/version.gitMajor=1",
    "k8s.io/component-base/version.gitMinor=35",
    "k8s.io/component-base/version.gitTreeState=clean",
)
_KUBERNETES_NAMES = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubectl",
)
PROGRAMS = (
    GoProgram("kubernetes", "kubernetes", ".", KUBERNETES, _KUBERNETES_STAMPS, aliases=_KUBERNETES_NAMES),
    GoProgram("etcd", "etcd", "go.etcd.io/etcd/server/v3", "3.6.5"),
    *(
        GoProgram(
            name,
            "containerd",
            f"{_CONTAINERD}/cmd/{name}",
            "2.2.9",
            (f"{_CONTAINERD}/version.Version=2.2.9",),
            "no_btrfs,no_zfs,no_devmapper,no_aufs,no_tracing",
        )
        for name in ("containerd", "containerd-shim-runc-v2", "ctr")
    ),
    *(
        GoProgram(path.rpartition("/")[2], "containerd", f"{_CNI}/{path}", "1.9.0")
        for path in ("main/bridge", "main/loopback", "ipam/host-local", "meta/portmap")
    ),
    GoProgram(
        "runc",
        "runc",
        "github.com/opencontainers/runc",
        "1.4.3",
        ("main.version=1.4.3",),
        "seccomp,netgo,osusergo",
        cgo=True,
    ),
    GoProgram("containerd-shim-runsc-v1", "gvisor", "gvisor.dev/gvisor/shim"),
    GoProgram("netpol", "addons", "./netpol", "2.2.1"),
    GoProgram("coredns", "addons", "./coredns", "1.14.0"),
    GoProgram("metrics-server", "metrics-server", "sigs.k8s.io/metrics-server/cmd/metrics-server", "0.9.0"),
    GoProgram("pause", "tools", "./pause"),
    GoProgram("probe", "tools", "./probe"),
)
# No part of the node: it is built when it is added to one.
AGENT_SANDBOX_CONTROLLER = GoProgram(
    "agent-sandbox-controller", "agent-sandbox", f"{AGENT_SANDBOX}/cmd/agent-sandbox-controller", "0.5.6"
)


def compile_program(program: GoProgram, folder: Path, *, go_cache: Path, system: Path) -> None:
    """Builds a program into a folder, with its other names beside it. Raises ClusterError."""
    target = folder / program.name
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        _go(program.name, program.command(fresh), program.module, environment(go_cache, system, cgo=program.cgo))
        fresh.rename(target)
    finally:
        fresh.unlink(missing_ok=True)
    for alias in program.aliases:
        (folder / alias).unlink(missing_ok=True)
        (folder / alias).symlink_to(program.name)


def copy_manifests(module: str, dependency: str, folder: str, target: Path, *, go_cache: Path) -> None:
    """Copies a folder with manifests of a module's dependency, below the kustomization of the module.

    Raises ClusterError.
    """
    command = ["go", "list", "-mod=readonly", "-m", "-f={{.Dir}}", dependency]
    found = Path(_go(dependency, command, module, environment(go_cache, target, cgo=False)).strip())
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        shutil.copytree(found / folder, fresh / "upstream")
        shutil.copy(MODULES / module / "kustomization.yaml", fresh)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def environment(go_cache: Path, system: Path, *, cgo: bool) -> dict[str, str]:
    """Returns the environment of the compiler. Libraries of C come from the unpacked packages of the distribution."""
    given = {name: value for name, value in os.environ.items() if not name.startswith(("GO", "CGO", "PKG_CONFIG"))}
    sources = {name: os.environ[name] for name in _SOURCE_SETTINGS if name in os.environ}
    fixed = {
        "GOCACHE": str(go_cache / "build"),
        "GOMODCACHE": str(go_cache / "mod"),
        "GOENV": "off",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-modcacherw",
        # go.sum holds the digest of every module.
        "GOSUMDB": "off",
        "GOOS": "linux",
        "GOARCH": "amd64",
        # Fewer collections: the compiler of large packages is half as fast with the default.
        "GOGC": "800",
        "CGO_ENABLED": "1" if cgo else "0",
    }
    return given | sources | fixed | (_c_libraries(system) if cgo else {})


def _c_libraries(system: Path) -> dict[str, str]:
    libraries = system / "usr" / "lib" / "x86_64-linux-gnu"
    return {
        "CGO_CFLAGS": f"-I{system / 'usr' / 'include'}",
        "CGO_LDFLAGS": f"-L{libraries}",
        "PKG_CONFIG_PATH": str(libraries / "pkgconfig"),
        "PKG_CONFIG_SYSROOT_DIR": str(system),
    }


def _go(name: str, command: Sequence[str], module: str, variables: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        cwd=MODULES / module,
        env=variables,
        capture_output=True,
        text=True,
        timeout=_BUILD_SECONDS,
        check=False,
    )
    if done.returncode:
        raise ClusterError(f"{name} could not be built:\n{done.stderr.strip()[-2000:]}")
    return done.stdout
