"""Decides who may administer a tool: change the state of its versions."""

from __future__ import annotations

from libs.common.tool_names import ToolName
from services.registry.domain.errors import namespace_not_found, namespace_not_owned
from services.registry.domain.model import Actor
from services.registry.domain.ports import Ledger


async def require_administrator(tool: ToolName, actor: Actor, ledger: Ledger) -> None:
    """Raise PERMISSION_DENIED if the actor may not administer the tool.

    The RPC chain has checked the scope, which is enough for peers and for callers without a tenant. A caller of a
    tenant
    administers only the tools of namespaces where it may publish: all other tools belong to others or to all tenants.
    """
    if not actor.tenant:
        return
    namespace = await ledger.namespace(tool.namespace)
    if namespace is None:
        raise namespace_not_found(tool.namespace)
    if not namespace.may_publish(actor):
        raise namespace_not_owned(namespace.namespace, namespace.owner)
