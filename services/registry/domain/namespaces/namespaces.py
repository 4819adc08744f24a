"""Claims, transfers, delegates and lists namespaces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from libs.common import page_tokens
from libs.common.runtime.clock import Clock
from libs.common.tool_names import DEFAULT_NAMESPACE, ToolName
from services.registry.domain.errors import (
    name_taken,
    namespace_changed,
    namespace_not_found,
    namespace_not_owned,
    namespace_owned,
    namespace_reserved,
    namespace_taken,
    page_token_invalid,
)
from services.registry.domain.model import Actor
from services.registry.domain.namespaces.ownership import Namespace
from services.registry.domain.ports import Catalogue, Histories

DEFAULT_PAGE = 100


@dataclass(frozen=True, slots=True)
class NamespacePage:
    """One page of namespaces. An empty token marks the last page."""

    namespaces: tuple[Namespace, ...]
    next_token: str


async def claim_namespace(
    namespace: str, owner: str, provider: str, by: Actor, *, catalogue: Catalogue, clock: Clock
) -> Namespace:
    """Assign an unowned namespace to a subject. An identical claim returns the existing namespace."""
    if namespace == DEFAULT_NAMESPACE:
        raise namespace_reserved(namespace)
    async with catalogue.writing() as ledger:
        existing = await ledger.namespace(namespace)
        if existing is not None:
            return _same_claim(existing, owner, provider)
        core_name = ToolName(DEFAULT_NAMESPACE, namespace)
        holder = (await ledger.holders([core_name])).get(core_name)
        if holder is not None:
            raise name_taken(core_name, holder)
        now = clock.now()
        claimed = Namespace(namespace, provider, owner, now, now)
        await ledger.put_namespace(claimed, by.recorded_name)
    return claimed


async def transfer_namespace(
    name: str, owner: str, provider: str, etag: str, by: Actor, *, catalogue: Catalogue, clock: Clock
) -> Namespace:
    """Transfer a namespace to another owner and drop its delegates."""

    def give(current: Namespace) -> Namespace:
        if etag not in ("", current.etag):
            raise namespace_changed(current.namespace, current.etag)
        return replace(current, owner=owner, provider=provider or current.provider, delegates=())

    return await _change(name, by, give, catalogue, clock)


async def add_delegate(name: str, subject: str, by: Actor, *, catalogue: Catalogue, clock: Clock) -> Namespace:
    """Allow a subject to publish in the namespace."""

    def add(current: Namespace) -> Namespace:
        _require_owner(current, by)
        return replace(current, delegates=tuple(sorted({*current.delegates, subject})))

    return await _change(name, by, add, catalogue, clock)


async def remove_delegate(name: str, subject: str, by: Actor, *, catalogue: Catalogue, clock: Clock) -> Namespace:
    """Revoke a subject's permission to publish."""

    def remove(current: Namespace) -> Namespace:
        _require_owner(current, by)
        return replace(current, delegates=tuple(delegate for delegate in current.delegates if delegate != subject))

    return await _change(name, by, remove, catalogue, clock)


async def get_namespace(name: str, *, histories: Histories) -> Namespace:
    """Return one namespace, or raise NOT_FOUND."""
    row = await histories.namespace(_bare(name))
    if row is None:
        raise namespace_not_found(_bare(name))
    return row


async def list_namespaces(page_size: int, page_token: str, *, histories: Histories) -> NamespacePage:
    """Return a page of namespaces, sorted by name."""
    query = ["ListNamespaces"]
    cursor = page_tokens.decode(query, page_token)
    if cursor is not None and (len(cursor) != 1 or not isinstance(cursor[0], str) or "\0" in cursor[0]):
        raise page_token_invalid()
    limit = page_size or DEFAULT_PAGE
    rows = await histories.namespaces(str(cursor[0]) if cursor else "", limit + 1)
    shown = tuple(rows[:limit])
    more = len(rows) > limit
    return NamespacePage(shown, page_tokens.encode(query, [shown[-1].namespace]) if more else "")


async def _change(
    name: str, by: Actor, change: Callable[[Namespace], Namespace], catalogue: Catalogue, clock: Clock
) -> Namespace:
    async with catalogue.writing() as ledger:
        current = await ledger.namespace(_bare(name))
        if current is None:
            raise namespace_not_found(_bare(name))
        changed = change(current)
        if changed == current:
            return current
        changed = replace(changed, update_time=clock.now(), revision=current.revision + 1)
        await ledger.put_namespace(changed, by.recorded_name)
    return changed


def _same_claim(existing: Namespace, owner: str, provider: str) -> Namespace:
    if existing.owner != owner:
        raise namespace_owned(existing.namespace, existing.owner)
    if existing.provider != provider:
        raise namespace_taken(existing.namespace, existing.provider)
    return existing


def _require_owner(current: Namespace, by: Actor) -> None:
    if not current.may_delegate(by):
        raise namespace_not_owned(current.namespace, current.owner)


def _bare(name: str) -> str:
    return name.removeprefix("namespaces/")
