"""The registry in PostgreSQL under the writer lock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Delete, Insert, Update, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from libs.audit_client.outbox import ActRecorder
from libs.common.errors import Violation
from libs.common.tool_names import ToolName
from services.registry.adapters.postgres.acts import (
    namespace_changed,
    trust_reinstated,
    trust_revoked,
    version_changed,
)
from services.registry.adapters.postgres.lookalikes import similar_names
from services.registry.adapters.postgres.rows import (
    HEAD,
    deprecation_row,
    head_of,
    manifest_of,
    tool_of,
    transition_row,
    version_without_build,
)
from services.registry.adapters.postgres.tables import (
    alike_names,
    change_counter,
    changes,
    namespace_delegates,
    namespaces,
    tool_names,
    tool_versions,
    tools,
    transitions,
    version_warnings,
)
from services.registry.adapters.trust.tables import revocations
from services.registry.domain.lifecycle.transitions import REGISTER, Transition
from services.registry.domain.model import Standing, Tool, ToolVersion, VersionHead
from services.registry.domain.namespaces.ownership import Namespace
from services.registry.domain.publishing.manifest import Manifest
from services.registry.domain.publishing.scan.lookalikes import CandidateNames, KnownName
from services.registry.domain.trust.look_alikes import AlikePair

Write = Insert | Update | Delete
# The retention of the change log. A watcher with an older token gets a snapshot.
KEPT_CHANGES = 10_000


class PostgresLedger:
    """Reads and writes inside the transaction that holds the counter's row lock. Created by `acquire`."""

    def __init__(self, connection: AsyncConnection, last: int, kept_changes: int, acts: ActRecorder) -> None:
        self._connection, self._acts = connection, acts
        self._namespaces: dict[str, Namespace | None] = {}
        self._last = last
        self._kept_changes = kept_changes

    @classmethod
    async def acquire(cls, connection: AsyncConnection, kept_changes: int, acts: ActRecorder) -> PostgresLedger:
        """Wait for the lock. Unlike a database sequence, it makes numbers visible in order: a watcher that saw 7 would
        miss a later commit of 6."""
        last = await connection.scalar(select(change_counter.c.last).with_for_update())
        return cls(connection, int(last or 0), kept_changes, acts)

    async def tool(self, name: ToolName) -> Tool | None:
        """Return the tool with exactly this name."""
        row = (await self._connection.execute(select(tools).where(tools.c.name == name.qualified))).first()
        return tool_of(row) if row else None

    async def heads(self, name: ToolName) -> Sequence[VersionHead]:
        """Return the versions of a tool."""
        query = select(*HEAD).where(tool_versions.c.tool == name.qualified)
        return [head_of(row) for row in await self._connection.execute(query)]

    async def namespace(self, namespace: str) -> Namespace | None:
        """Return a namespace. Read once: nothing but this ledger changes it under the lock."""
        if namespace not in self._namespaces:
            self._namespaces[namespace] = await namespace_of(self._connection, namespace)
        return self._namespaces[namespace]

    async def put_namespace(self, namespace: Namespace, by: str) -> None:
        """Store a namespace with exactly these delegates."""
        act = namespace_changed(await self.namespace(namespace.namespace), namespace, namespace.update_time)
        await self._connection.execute(self._acts.insertion(act))
        self._namespaces[namespace.namespace] = namespace
        row = {column.name: getattr(namespace, column.name) for column in namespaces.c}
        put = insert(namespaces).values(row).on_conflict_do_update(index_elements=["namespace"], set_=row)
        await self._connection.execute(put)
        here = namespace_delegates.c.namespace == namespace.namespace
        gone = delete(namespace_delegates).where(here, namespace_delegates.c.subject.not_in(namespace.delegates))
        await self._connection.execute(gone)
        added = {"namespace": namespace.namespace, "added_by": by, "create_time": namespace.update_time}
        for subject in namespace.delegates:
            one = insert(namespace_delegates).values(added | {"subject": subject}).on_conflict_do_nothing()
            await self._connection.execute(one)

    async def namespaces_among(self, names: Iterable[str]) -> frozenset[str]:
        """Return which of these names are namespaces."""
        words = list(names)
        if not words:
            return frozenset()
        query = select(namespaces.c.namespace).where(namespaces.c.namespace.in_(words))
        return frozenset(await self._connection.scalars(query))

    async def holders(self, names: Iterable[ToolName]) -> Mapping[ToolName, ToolName]:
        """Return the tool of each name or alias."""
        query = select(tool_names).where(tool_names.c.name.in_([name.qualified for name in names]))
        rows = await self._connection.execute(query)
        return {ToolName.parse(row.name): ToolName.parse(row.tool) for row in rows}

    async def next_sequence(self) -> int:
        """Return the number of the next change."""
        return self._last + 1

    async def add(self, version: ToolVersion, tool: Tool, *, registered_through: str) -> None:
        """Store a new version, its updated tool, the change and the initial transition."""
        self._acts.admit()
        head = version.head
        begun = Transition(
            sequence=head.standing.sequence,
            tool=head.tool,
            version=str(head.version),
            verb=REGISTER,
            from_state=None,
            to_state=head.standing.state,
            actor=head.registered_by,
            through=registered_through,
            reason="",
            time=head.create_time,
        )
        stored = insert(tool_versions).values(_version_row(version, registered_through))
        if await self.namespace(tool.name.namespace) is None:
            claimed = namespace_changed(None, _first_namespace(tool, head), head.create_time)
            await self._connection.execute(self._acts.insertion(claimed))
            del self._namespaces[tool.name.namespace]
        await self._execute_in_one_statement(
            _own_namespace(tool, head), *_put_tool(tool), stored, *self._change(head, begun)
        )

    async def add_warnings(self, head: VersionHead, warnings: Sequence[Violation]) -> None:
        """Store the scan warnings of a version."""
        if warnings:
            row = {"tool": head.tool.qualified, "version": str(head.version), "warnings": [asdict(w) for w in warnings]}
            await self._connection.execute(insert(version_warnings).values(row))

    async def similar_names(self, candidate: CandidateNames, *, since: int = 0) -> Sequence[KnownName]:
        """Return the names that may resemble the candidate's."""
        return await similar_names(self._connection, candidate, since)

    async def add_alike_pairs(self, pairs: Iterable[AlikePair]) -> None:
        """Store pairs of names that are alike."""
        rows = [asdict(pair) for pair in pairs]
        if rows:
            await self._connection.execute(insert(alike_names).on_conflict_do_nothing(), rows)

    async def manifest(self, head: VersionHead) -> Manifest:
        """Return the manifest of a version."""
        query = select(tool_versions.c.document).where(*_key_of(head))
        return manifest_of((await self._connection.execute(query)).scalar_one())

    async def update_standing(self, head: VersionHead, transition: Transition) -> None:
        """Store the standing of a version, the change and the transition."""
        moved = update(tool_versions).where(*_key_of(head)).values(_standing_row(head.standing))
        await self._execute_in_one_statement(moved, *self._change(head, transition))

    async def put_tool(self, tool: Tool) -> None:
        """Store a tool and its new aliases."""
        await self._execute_in_one_statement(*_put_tool(tool))

    async def point_alias(self, alias: ToolName, tool: ToolName) -> None:
        """Point an alias to another tool."""
        moved = update(tool_names).where(tool_names.c.name == alias.qualified).values(tool=tool.qualified)
        await self._connection.execute(moved)

    async def verb_of(self, head: VersionHead, actor: str, request_id: str) -> str | None:
        """Return the verb that a request of this actor applied to the version."""
        here = (transitions.c.tool == head.tool.qualified, transitions.c.version == str(head.version))
        asked = (transitions.c.actor == actor, transitions.c.request_id == request_id)
        verb: str | None = await self._connection.scalar(select(transitions.c.verb).where(*here, *asked))
        return verb

    async def revoked(self, tool: ToolName) -> bool:
        """Return whether the tool is revoked."""
        query = select(revocations.c.tool).where(revocations.c.tool == tool.qualified)
        return await self._connection.scalar(query) is not None

    async def revoke(self, tool: ToolName, actor: str, reason: str, now: datetime, sequence: int) -> bool:
        """Mark the tool as revoked since a change number; False if it already was."""
        row = {"tool": tool.qualified, "reason": reason, "actor": actor, "time": now, "sequence": sequence}
        marked = insert(revocations).values(row).on_conflict_do_nothing().returning(revocations.c.tool)
        if await self._connection.scalar(marked) is None:
            return False
        await self._connection.execute(self._acts.insertion(trust_revoked(tool, reason, now)))
        return True

    async def reinstate(self, tool: ToolName, now: datetime) -> int | None:
        """Remove the mark, and return the number of its first change; None if there was no mark."""
        unmarked = delete(revocations).where(revocations.c.tool == tool.qualified).returning(revocations.c.sequence)
        since: int | None = await self._connection.scalar(unmarked)
        if since is not None:
            await self._connection.execute(self._acts.insertion(trust_reinstated(tool, now)))
        return since

    async def versions_changed_by(self, tool: ToolName, verb: str, since: int) -> frozenset[str]:
        """Return the versions that a verb was applied to since a change number."""
        here = (transitions.c.tool == tool.qualified, transitions.c.verb == verb, transitions.c.sequence >= since)
        return frozenset(await self._connection.scalars(select(transitions.c.version).where(*here)))

    def _change(self, head: VersionHead, transition: Transition) -> list[Write]:
        """Return the statements that record a change of a version."""
        self._last = head.standing.sequence
        row = {"tool": head.tool.qualified, "version": str(head.version), **_standing_row(head.standing)}
        return [
            insert(changes).values(row),
            update(change_counter).values(last=self._last),
            delete(changes).where(changes.c.sequence <= self._last - self._kept_changes),
            self._acts.insertion(version_changed(head, transition)),
            insert(transitions).values(transition_row(transition)),
        ]

    async def _execute_in_one_statement(self, *writes: Write) -> None:
        """Execute all writes in one round trip, because other writers wait for the lock. Foreign keys are checked at
        the end of the statement."""
        *others, last = writes
        await self._connection.execute(
            last.add_cte(*(write.cte(f"part{number}") for number, write in enumerate(others)))
        )


def _own_namespace(tool: Tool, head: VersionHead) -> Write:
    """Return the insert that makes the registrant the owner of an unowned namespace."""
    first = _first_namespace(tool, head)
    owned = {column.name: getattr(first, column.name) for column in namespaces.c}
    return insert(namespaces).values(owned).on_conflict_do_nothing()


def _first_namespace(tool: Tool, head: VersionHead) -> Namespace:
    return Namespace(
        namespace=tool.name.namespace,
        provider=tool.provider,
        owner=head.registered_by,
        create_time=head.create_time,
        update_time=head.create_time,
        revision=1,
    )


def _put_tool(tool: Tool) -> list[Write]:
    row = _tool_row(tool)
    names = [tool.name, *(ToolName(tool.name.namespace, alias) for alias in tool.aliases)]
    return [
        insert(tools).values(row).on_conflict_do_update(index_elements=["name"], set_=row),
        # One statement per row, because SQLAlchemy compiles multi-row inserts each time.
        *(_insert_name(name, tool.name) for name in names),
    ]


def _insert_name(name: ToolName, tool: ToolName) -> Write:
    return insert(tool_names).values(name=name.qualified, tool=tool.qualified).on_conflict_do_nothing()


async def namespace_of(connection: AsyncConnection, namespace: str) -> Namespace | None:
    """Return a namespace and its delegates."""
    delegated = select(namespace_delegates.c.subject).where(namespace_delegates.c.namespace == namespaces.c.namespace)
    subjects = func.array(delegated.order_by(namespace_delegates.c.subject).scalar_subquery()).label("delegates")
    query = select(namespaces, subjects).where(namespaces.c.namespace == namespace)
    row = (await connection.execute(query)).first()
    return None if row is None else Namespace(**{**row._mapping, "delegates": tuple(row.delegates)})


def _key_of(head: VersionHead) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return tool_versions.c.tool == head.tool.qualified, tool_versions.c.version == str(head.version)


def _tool_row(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name.qualified,
        "namespace": tool.name.namespace,
        "provider": tool.provider,
        "title": tool.title,
        "tags": list(tool.tags),
        "latest_version": tool.latest_version,
        "aliases": list(tool.aliases),
        "create_time": tool.create_time,
        "update_time": tool.update_time,
    }


def _version_row(version: ToolVersion, registered_through: str) -> dict[str, Any]:
    head, manifest = version.head, version.manifest
    if manifest is None:
        raise ValueError("a version is stored with its manifest")
    return {
        "tool": head.tool.qualified,
        "version": str(head.version),
        "number": version_without_build(head.version),
        "digest": head.digest,
        "manifest": manifest.document,
        "document": manifest.payload,
        "size": head.size,
        "registered_by": head.registered_by,
        "registered_through": registered_through,
        "create_time": head.create_time,
        **_standing_row(head.standing),
    }


def _standing_row(standing: Standing) -> dict[str, Any]:
    return {
        "state": standing.state.value,
        "state_reason": standing.state_reason,
        "deprecation": deprecation_row(standing.deprecation),
        "update_time": standing.update_time,
        "sequence": standing.sequence,
        "beneath": [state.value for state in standing.beneath],
    }
