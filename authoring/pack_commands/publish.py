"""`toolmesh pack publish`: registers the tools of a pack with their provenance."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from toolmesh_sdk.cli.exits import FAILED
from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.admin_connection import as_admin
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.tool_names import short_name
from toolmesh_sdk.cli.views import output

from authoring.pack_commands.problems import Pack, print_problems


@report_errors
@add_target_options()
def publish(
    pack: Pack = Path(),
    revision: Annotated[str, typer.Option(help="The revision of the source. Default: the commit of git.")] = "",
    key: Annotated[
        Path | None, typer.Option(help="An Ed25519 key in PEM. Default: this user's, which is made once.")
    ] = None,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Register the tools of a pack, signed.

    Checks the pack and that its files are committed. Each version states the digest of the pack's files, the
    revision, the key and its signature, which the registry verifies. Other code under the same contract becomes the
    next version that is compatible. Executors get the code from the folders of TOOLMESH_TOOL_PACKS.

    \b
    Example:
      toolmesh pack publish greeter --revision v1.0.0
    """
    from authoring.packs.check_pack import check_pack
    from authoring.packs.provenance import ProvenanceError, Publisher, default_key_path, read_key, revision_of
    from authoring.packs.register_pack import PackRegistry

    checked = check_pack(pack)
    print_problems(checked.problems)
    if checked.problems:
        raise typer.Exit(FAILED)
    try:
        stated = revision or revision_of(pack.resolve())
        publisher = Publisher(read_key(key or default_key_path()), checked.digest, stated)
    except ProvenanceError as error:
        raise typer.BadParameter(str(error), param_hint="PACK") from None
    with as_admin(target) as transport:
        registry = PackRegistry(transport, publisher.sign)
        registry.expect(checked.manifests.values())
        versions = [registry.register(manifest) for manifest in checked.manifests.values()]
    if as_json:
        published = [{"version": name, "created": created} for name, created in versions]
        provenance = {"pack_digest": checked.digest, "revision": stated, "public_key": publisher.public_key}
        output.print_json({"versions": published, "provenance": provenance})
        return
    for name, created in versions:
        output.out().print(output.text(f"{short_name(name)} {'published' if created else 'was published already'}"))
    output.out().print(output.text((f"{checked.digest}, revision {stated}, key {publisher.public_key}", "dim")))
