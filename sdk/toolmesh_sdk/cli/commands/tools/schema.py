"""`toolmesh tools schema`: prints the JSON Schema of documents that people write."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from toolmesh_sdk.cli.views import output


class Document(StrEnum):
    """A kind of document with a JSON Schema."""

    MANIFEST = "manifest"


def add_to(app: typer.Typer) -> None:
    """Add the command to a group."""
    app.command()(schema)


def schema(
    document: Annotated[Document, typer.Argument(metavar="manifest", help="The kind of document.")],
) -> None:
    """Print the JSON Schema of manifests, for editors.

    \b
    Example:
      toolmesh tools schema manifest > manifest.schema.json
    """
    from toolmesh_sdk.manifests.json_schema import manifest_schema

    output.print_json({Document.MANIFEST: manifest_schema}[document]())
