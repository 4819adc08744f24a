"""Times in the past, as a person writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import typer

from toolmesh_sdk.cli.inputs.claims import seconds_of


def moment_from(text: str, hint: str) -> datetime:
    """Read a time, in UTC unless it says otherwise, or a span before now such as 2h."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return _ago(text, hint)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _ago(text: str, hint: str) -> datetime:
    try:
        return datetime.now(UTC) - timedelta(seconds=seconds_of(text, hint))
    except (typer.BadParameter, OverflowError):
        raise typer.BadParameter(f"{text} is neither a time nor a span such as 2h", param_hint=hint) from None
