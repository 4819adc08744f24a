"""The secrets of a mesh: created once and kept in the state folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from localmesh.state.state import State

DATABASE_ROLES = ("registry", "authz", "executor", "approval", "audit")
# Who owns a service's schema where its own role must not: the log's writer cannot be let loose on its history.
SCHEMA_OWNERS = {"audit": "audit_owner"}
DATABASE_OWNER = "postgres"
# The services that use Valkey, each with a user of its own.
VALKEY_USERS = ("registry", "authz", "executor", "audit", "gateway")
# All that have a password.
LOGINS = (DATABASE_OWNER, *DATABASE_ROLES, *SCHEMA_OWNERS.values())


@dataclass(frozen=True)
class SecretFiles:
    """The secret files of a state folder."""

    folder: Path

    @property
    def signing_keys(self) -> Path:
        return self.folder / "signing-keys"

    @property
    def sealing_keys(self) -> Path:
        return self.folder / "sealing-keys"

    @property
    def tool_secrets(self) -> Path:
        return self.folder / "tool-secrets"

    @property
    def console_keys(self) -> Path:
        return self.folder / "console-keys"

    @property
    def checkpoint_key(self) -> Path:
        return self.folder / "checkpoint.pem"

    @property
    def valkey(self) -> Path:
        return self.folder / "valkey"

    def valkey_user(self, name: str) -> Path:
        return self.folder / "valkey-users" / name

    def database(self, role: str) -> Path:
        return self.folder / "database" / role


@dataclass(frozen=True)
class Secrets:
    """Passwords by value, for URLs; keys by path."""

    database: dict[str, str]
    valkey: str
    """The operator's; no service has it."""
    valkey_users: dict[str, str]
    signing_keys: Path
    sealing_keys: Path
    tool_secrets: Path
    console_keys: Path
    checkpoint_key: Path

    def __repr__(self) -> str:
        return "Secrets(...)"


def read_secrets(state: State) -> Secrets:
    """Reads the secrets that `keys.ensure_secrets` created."""
    files = SecretFiles(state.secrets)
    return Secrets(
        database={role: files.database(role).read_text() for role in LOGINS},
        valkey=files.valkey.read_text(),
        valkey_users={name: files.valkey_user(name).read_text() for name in VALKEY_USERS},
        signing_keys=files.signing_keys,
        sealing_keys=files.sealing_keys,
        tool_secrets=files.tool_secrets,
        console_keys=files.console_keys,
        checkpoint_key=files.checkpoint_key,
    )
