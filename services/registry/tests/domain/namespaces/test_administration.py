"""Who may administer a tool."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.tool_names import ToolName
from services.registry.domain.model import Actor
from services.registry.domain.namespaces.administration import require_administrator
from services.registry.domain.namespaces.ownership import Namespace

ANN, BEN, EVE = (f"did:web:acme.example:users:{name}" for name in ("ann", "ben", "eve"))
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOOL = ToolName("acme", "reader")


class OneNamespace:
    """A ledger with one namespace."""

    async def namespace(self, namespace: str) -> Namespace | None:
        return Namespace("acme", "acme", ANN, NOW, NOW, delegates=(BEN,)) if namespace == "acme" else None


async def reason(tool: ToolName, actor: Actor) -> Reason | None:
    ledger: Any = OneNamespace()
    try:
        await require_administrator(tool, actor, ledger)
    except MeshError as error:
        return error.reason
    return None


@pytest.mark.parametrize(
    ("actor", "refusal"),
    [
        (Actor("operator"), None),
        (Actor("executor"), None),
        (Actor("edge", EVE), None),
        (Actor("edge", ANN, "acme"), None),
        (Actor("edge", BEN, "acme"), None),
        (Actor("edge", EVE, "acme"), Reason.PERMISSION_DENIED),
    ],
)
async def test_a_caller_of_a_tenant_must_own_or_share_the_namespace(actor: Actor, refusal: Reason | None) -> None:
    assert await reason(TOOL, actor) is refusal


async def test_a_tool_without_a_namespace_has_no_administrator_in_a_tenant() -> None:
    assert await reason(ToolName("other", "reader"), Actor("edge", ANN, "acme")) is Reason.NOT_FOUND
