"""Session labels with a real database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.auth.authority import Authority
from libs.common.auth.identity import Ancestor
from libs.common.errors import MeshError, Reason
from libs.common.sql.engine import engine_for
from services.authz.adapters.postgres.session_labels import PostgresSessionLabels
from services.authz.domain.model import DecisionRequest
from services.authz.tests.adapters.cedar.test_engine import make_request


@pytest.fixture
async def engine(database: Callable[[str], str]) -> AsyncIterator[AsyncEngine]:
    engine = engine_for(database("authz"), schema="authz")
    yield engine
    await engine.dispose()


def request(session: str = "", holding: str = "t", root: str = "", tenant: str = "acme") -> DecisionRequest:
    authority = Authority(subject="did:web:a", tier="user")
    lineage = (Ancestor("did:web:a", root, "k", 0.0, authority),) if root else ()
    return make_request(session_id=session, token_id=holding, tenant=tenant, lineage=lineage)


async def test_labels_are_seen_in_the_session_and_along_the_chain(engine: AsyncEngine) -> None:
    labels = PostgresSessionLabels(engine)
    assert await labels.add(request("s", "child", root="root"), ["confidential"]) == ("confidential",)
    for same in (
        request("s", "other"),
        request("", "root"),
        request("elsewhere", "sibling", root="root"),
        request("s", "child", root="root"),
    ):
        assert await labels.find(same) == {"confidential"}
    for other in (request("s2", "other"), request("", "child2"), request("s", "other", tenant="evil")):
        assert await labels.find(other) == frozenset()


async def test_only_missing_labels_are_added(engine: AsyncEngine) -> None:
    ours, theirs = PostgresSessionLabels(engine), PostgresSessionLabels(engine)
    assert await ours.add(request("s"), ["b", "a"]) == ("a", "b")
    assert await ours.add(request("s"), ["a", "b"]) == ()
    # The other replica does not know yet, and the database does.
    assert await theirs.add(request("s"), ["a", "c"]) == ("c",)
    assert await ours.find(request("s")) == {"a", "b", "c"}


async def test_a_known_label_costs_no_look_at_the_database(engine: AsyncEngine) -> None:
    labels = PostgresSessionLabels(engine, cache_size=2)
    await labels.add(request("s"), ["a"])
    await engine.dispose()
    assert await labels.add(request("s"), ["a"]) == ()


async def test_of_concurrent_calls_one_adds_a_label(engine: AsyncEngine) -> None:
    replicas = [PostgresSessionLabels(engine) for _ in range(5)]
    added = await asyncio.gather(*(labels.add(request("s"), ["a"]) for labels in replicas))
    assert sorted(added) == [(), (), (), (), ("a",)]


async def test_an_added_label_is_visible_to_every_replica_at_once(engine: AsyncEngine) -> None:
    """A call that follows the response of the labeled call must see the label."""
    writer, reader = PostgresSessionLabels(engine), PostgresSessionLabels(engine)
    for index in range(20):
        await reader.find(request("s"))
        await writer.add(request("s"), [f"label{index}"])
        assert f"label{index}" in await reader.find(request("s"))


async def test_session_labels_fail_without_a_database(database: Callable[[str], str]) -> None:
    gone = PostgresSessionLabels(engine_for("postgresql://nobody:x@127.0.0.1:1/none", schema="authz"))
    for operation in (gone.find(request("s")), gone.add(request("s"), ["a"])):
        with pytest.raises(MeshError) as caught:
            await operation
        assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
