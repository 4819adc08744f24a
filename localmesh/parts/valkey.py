"""Valkey on loopback, with a password and an append-only file."""

from __future__ import annotations

from pathlib import Path

from localmesh.process.child import Launch
from localmesh.process.part import Part
from localmesh.process.probes import valkey_answers
from localmesh.settings import LOOPBACK, inherited_environment
from localmesh.state.files import write_private

CONFIGURATION = """\
bind {address}
port {port}
requirepass {password}
dir "{folder}"
daemonize no
appendonly yes
appendfsync everysec
save ""
log-timestamp-format iso8601
"""


def valkey_part(server: Path, folder: Path, port: int, password: str) -> Part:
    """Returns the part. The password is in a private file, never on the command line."""
    configuration = folder / "valkey.conf"

    async def prepare() -> None:
        text = CONFIGURATION.format(address=LOOPBACK, port=port, password=password, folder=folder)
        write_private(configuration, text.encode())

    async def probe() -> bool:
        return await valkey_answers(port, password)

    return Part(
        name="valkey",
        launch=Launch((str(server), str(configuration)), Path("/"), inherited_environment()),
        probe=probe,
        address=f"{LOOPBACK}:{port}",
        prepare=prepare,
    )


def valkey_url(password: str, port: int) -> str:
    """Returns the server's URL for services."""
    return f"redis://:{password}@{LOOPBACK}:{port}/0"
