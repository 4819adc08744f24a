"""`toolmesh pack dev`: runs a pack on the local mesh, and again at every save."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from toolmesh_sdk.cli.exits import FAILED
from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.admin_connection import as_admin
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.tool_names import short_name
from toolmesh_sdk.cli.views import output

from authoring.pack_commands.problems import Pack, print_problems, print_secrets, shown_path
from authoring.packs.manifest_files import FOLDER

if TYPE_CHECKING:
    from authoring.packs.develop_pack import Round
    from services.executor.adapters.runners.packs.signature import Signature

POLL_SECONDS = 0.15


@report_errors
@add_target_options()
def dev(
    pack: Pack = Path(),
    once: Annotated[bool, typer.Option("--once", help="Do it once and exit, with 1 for a problem.")] = False,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Run a pack on the local mesh, again at each save.

    Each save checks the pack, writes its manifests, loads its code into the running executors and registers its tools.
    A changed contract is registered under the next legal version; the file keeps its own. A pack with a problem is not
    loaded: the mesh goes on with what it had. Ctrl-C stops watching; the pack stays. With --json: a line per round.

    \b
    Examples:
      toolmesh pack dev greeter
      toolmesh pack dev examples/packs/wordkit --once
    """
    from authoring.packs.develop_pack import develop_pack
    from authoring.packs.register_pack import PackRegistry
    from services.executor.adapters.runners.packs.signature import signature_of

    runtime = target.require_runtime()
    if not runtime.get("packs"):
        raise typer.BadParameter("the local mesh is older than this command; start it again", param_hint="--state")
    with as_admin(target) as transport:
        registry = PackRegistry(transport)
        told: dict[str, str] = {}
        while True:
            before = signature_of(pack)
            done = develop_pack(pack, runtime, registry.register, registry.expect)
            _print_round(pack, done, as_json=as_json)
            if done.secrets != told and not as_json:
                print_secrets(told := done.secrets)
            if once:
                break
            try:
                # Compared with the files before the round: a save amid it counts.
                while _authored(signature_of(pack), done.derived) == _authored(before, done.derived):
                    time.sleep(POLL_SECONDS)
            except KeyboardInterrupt:
                return
            runtime = target.require_runtime()
    if done.problems:
        raise typer.Exit(FAILED)


def _authored(signature: Signature | None, derived: frozenset[str]) -> Signature | None:
    """Leave out the manifests that this command writes itself."""
    own = {f"{FOLDER}/{tool_id}.json" for tool_id in derived}
    return None if signature is None else tuple(state for state in signature if state[0] not in own)


def _print_round(pack: Path, done: Round, *, as_json: bool) -> None:
    if as_json:
        versions = [{"version": name, "created": created} for name, created in done.versions]
        problems = [problem.to_dict() for problem in done.problems]
        document = {"digest": done.digest, "versions": versions, "problems": problems, "seconds": done.seconds}
        document |= {"secrets": done.secrets}
        output.print_json(document, lines=True)
        return
    print_problems(done.problems)
    if done.digest:
        tools = ", ".join(short_name(name) + (" (new)" if created else "") for name, created in done.versions)
        line = f"{shown_path(pack.resolve())} loaded in {done.seconds:.1f} s: {tools or 'no tool'}"
        output.out().print(output.text(line))
    else:
        output.err().print(output.text("Not loaded; the mesh has what it had."))
