"""Valkey on loopback, with a user for each service and an append-only file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from string import Template

from localmesh.process.child import Launch
from localmesh.process.part import Part
from localmesh.process.probes import valkey_answers
from localmesh.settings import LOOPBACK, ROOT, inherited_environment
from localmesh.state.files import write_private

USERS = ROOT / "deploy" / "valkey" / "users.acl"
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
{users}
"""


def valkey_part(server: Path, folder: Path, port: int, password: str, users: Mapping[str, str]) -> Part:
    """Returns the part. The passwords are in a private file, never on the command line; those of services as hashes."""
    configuration = folder / "valkey.conf"

    async def prepare() -> None:
        text = CONFIGURATION.format(
            address=LOOPBACK, port=port, password=password, folder=folder, users=render_users(users)
        )
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


def render_users(passwords: Mapping[str, str]) -> str:
    """Renders the users. Raises KeyError for one without a password."""
    digests = {name: hashlib.sha256(password.encode()).hexdigest() for name, password in passwords.items()}
    return Template(USERS.read_text()).substitute(digests)


def valkey_url(password: str, port: int, user: str = "") -> str:
    """Returns the server's URL for a service, or without a user for the operator."""
    return f"redis://{user}:{password}@{LOOPBACK}:{port}/0"
