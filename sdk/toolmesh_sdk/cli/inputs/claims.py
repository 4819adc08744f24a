"""Decodes the claims of a token without verifying its signature."""

from __future__ import annotations

import base64
import json
from typing import Any

import typer


def decode_claims(token: str) -> dict[str, Any]:
    """Return the claims of a JWT. Only the mesh can verify them."""
    parts = token.strip().split(".")
    try:
        if len(parts) != 3:
            raise ValueError("a token has three parts")
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError as error:
        raise typer.BadParameter(f"not a token: {error}", param_hint="TOKEN") from None
    if not isinstance(claims, dict):
        raise typer.BadParameter("not a token: its claims are not an object", param_hint="TOKEN")
    return claims
