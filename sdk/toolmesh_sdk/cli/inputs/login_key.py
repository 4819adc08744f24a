"""The login key of a person: tokens that are bound to it are worth nothing without it (DPoP, RFC 9449)."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from toolmesh_sdk.cli.inputs.claims import decode_claims
from toolmesh_sdk.cli.inputs.contexts import config_folder

if TYPE_CHECKING:
    from toolmesh_sdk._wire.proof import ProofKey

_HINT = "--dpop"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def login_key_file() -> Path:
    """Return the file of the key."""
    return config_folder() / "login-key.pem"


def read_or_create_login_key() -> ProofKey:
    """Return the key; the first use makes it."""
    path = login_key_file()
    if not path.exists():
        _create(path)
    return _read(path)


def proof_key_for(token: str) -> ProofKey | None:
    """Return the login key if a token is bound to it; None for a bearer token and for one that another key is for."""
    bound_to = _thumbprint_in(token)
    path = login_key_file()
    if not bound_to or not path.exists():
        return None
    key = _read(path)
    return key if key.thumbprint == bound_to else None


def _thumbprint_in(token: str) -> str:
    try:
        claim = decode_claims(token).get("cnf")
    except typer.BadParameter:
        # The mesh says what is wrong with it.
        return ""
    return str(claim.get("jkt", "")) if isinstance(claim, dict) else ""


def _read(path: Path) -> ProofKey:
    from toolmesh_sdk._wire.proof import ProofKey

    try:
        if path.stat().st_mode & _OTHERS:
            raise typer.BadParameter(f"others may read {path}; `chmod 600 {path}`", param_hint=_HINT)
        return ProofKey(path)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{path} is not a login key: {error}", param_hint=_HINT) from None


def _create(path: Path) -> None:
    """Write a new key, whole and readable by its owner alone; one that another process wrote meanwhile stays."""
    from toolmesh_sdk._wire.proof import ProofKey

    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.touch(mode=0o600, exist_ok=False)
        draft.write_bytes(ProofKey().private_pem())
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be written: {error.strerror}", param_hint=_HINT) from None
