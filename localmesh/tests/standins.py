"""Compositions with stand-ins for the services, for a runner that is tested on its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from localmesh import composition
from localmesh.composition import SERVICES, Mesh
from localmesh.process.part import Part, no_op
from localmesh.state import files
from localmesh.state import log_rotation as logkeeping
from localmesh.view import banner

PROGRAM = Path(__file__).with_name("standin.py")
TOKEN = "stand-in.token"


def whole_mesh(mesh: Mesh) -> Sequence[Part]:
    """The real composition: real PostgreSQL, Valkey and Envoy, with stand-ins that speak mutual TLS for the
    services."""
    extra = {"STANDIN_SIGNING_KEYS": str(mesh.secrets.signing_keys)}
    return [_stand_in(part, extra) if part.name in SERVICES else part for part in composition.compose(mesh)]


def few_parts(mesh: Mesh) -> Sequence[Part]:
    """Valkey and two light stand-ins, where the matter is the runner and not what it runs."""
    parts = {part.name: part for part in composition.compose(mesh)}
    authz = replace(_stand_in(parts["authz"], {"STANDIN_LIGHT": "1"}), after=("valkey",))
    executor = replace(_stand_in(parts["executor"], {"STANDIN_LIGHT": "1"}), after=("authz",))
    return [parts["valkey"], authz, executor]


def one_that_fails(mesh: Mesh) -> Sequence[Part]:
    """Valkey and a part that ends before it is ready."""
    parts = few_parts(mesh)
    program = "import sys; [sys.stderr.write(f'line {n}\\n') for n in range(40)]; sys.exit(7)"
    failing = replace(parts[1], launch=replace(parts[1].launch, argv=(sys.executable, "-c", program)))
    return [parts[0], failing]


def one_that_was_misled(mesh: Mesh) -> Sequence[Part]:
    """Valkey and a service that does not start with what it was told."""
    parts = few_parts(mesh)
    program = "import sys; sys.stderr.write('authz: TOOLMESH_ANYTHING is wrong\\n'); sys.exit(2)"
    return [parts[0], replace(parts[1], launch=replace(parts[1].launch, argv=(sys.executable, "-c", program)))]


def one_that_talks(mesh: Mesh) -> Sequence[Part]:
    """Valkey and a part that says a line again and again, under a runner that bears with little and looks often."""
    files.ROTATE_BYTES, logkeeping.LOOK_SECONDS = 1000, 0.05
    parts = few_parts(mesh)
    program = "import time\nwhile True: print('a line of twenty.', flush=True); time.sleep(0.01)"
    talking = replace(parts[1], launch=replace(parts[1].launch, argv=(sys.executable, "-c", program)))
    return [parts[0], replace(talking, probe=_at_once)]


async def _at_once() -> bool:
    return True


def _stand_in(part: Part, extra: dict[str, str]) -> Part:
    # No token can be minted here: in the runner of these parts, another program answers instead of the client library.
    banner.MINT = ("-S", "-c", f"print({TOKEN!r})")
    environment = {**part.launch.environment, **extra}
    launch = replace(part.launch, argv=(sys.executable, str(PROGRAM), part.name), environment=environment)
    # A stand-in has no database, so there is nothing to migrate.
    return replace(part, launch=launch, initialize=no_op)


def one_that_lingers(mesh: Mesh) -> Sequence[Part]:
    """Valkey and a part that takes no notice of being asked to stop, but says that it was asked."""
    parts = few_parts(mesh)
    lingering = mesh.state.path / "lingering"

    async def note() -> None:
        lingering.touch()

    deaf = _stand_in(parts[1], {"STANDIN_DEAF": "1"})
    return [parts[0], replace(deaf, quiesce=note, stop_seconds=60)]
