"""Builds policy texts and policy set folders for tests."""

from __future__ import annotations

from pathlib import Path

from services.authz.adapters.cedar.compiler import SCHEMA_FILE
from services.authz.wiring import POLICIES


def permit(name: str, condition: str = "") -> str:
    """Return a permit of both actions."""
    return _policy("permit", name, "allow", "action", condition)


def forbid(name: str, condition: str = "") -> str:
    """Return a policy that denies."""
    return _policy("forbid", name, "deny", 'action == Action::"invoke"', condition)


def ask(name: str, condition: str = "", annotations: str = "") -> str:
    """Return a policy that requires approval."""
    scope = 'action == Action::"invoke_without_approval"'
    return annotations + _policy("forbid", name, "needs_approval", scope, condition)


def write_policy_set(folder: Path, *policies: str) -> Path:
    """Write a policy set with the shipped schema; return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SCHEMA_FILE).write_text((POLICIES / SCHEMA_FILE).read_text())
    (folder / "policies.cedar").write_text("\n".join(policies))
    return folder


def _policy(kind: str, name: str, effect: str, action: str, condition: str) -> str:
    when = f" when {{ {condition} }}" if condition else ""
    return f'@id("{name}") @effect("{effect}") @reason("{name} matched.") {kind} (principal, {action}, resource){when};'
