"""Session labels with a real database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.auth.authority import Authority
from libs.common.auth.identity import Ancestor
from libs.common.errors import MeshError, Reason
from libs.common.sql.engine import engine_for
from services.authz.adapters.postgres.session_labels import PostgresSessionLabels, label_scopes
from services.authz.domain.model import DecisionRequest, FoundLabels
from services.authz.domain.policies.replay_policy_set import held_at
from services.authz.tests.adapters.cedar.test_engine import make_request

NONE = frozenset[str]()
CONFIDENTIAL = frozenset({"confidential"})


@pytest.fixture
async def engine(database: Callable[[str], str]) -> AsyncIterator[AsyncEngine]:
    engine = engine_for(database("authz"), schema="authz")
    yield engine
    await engine.dispose()


def request(session: str = "", holding: str = "t", root: str = "", tenant: str = "acme") -> DecisionRequest:
    authority = Authority(subject="did:web:a", tier="user")
    lineage = (Ancestor("did:web:a", root, "k", 0.0, authority),) if root else ()
    return make_request(
        session_id=session, token_id=holding, tenant=tenant, lineage=lineage, invocation_id=f"i-{session or holding}"
    )


async def test_a_label_is_of_the_session_and_known_along_the_chain(engine: AsyncEngine) -> None:
    labels = PostgresSessionLabels(engine)
    assert await labels.add(request("s", "child", root="root"), ["confidential"], "decisions/1") == ("confidential",)
    for asked, session, token in (
        (request("s", "child", root="root"), CONFIDENTIAL, CONFIDENTIAL),
        # The same session with another token, and another session with a token of the same chain.
        (request("s", "other"), CONFIDENTIAL, NONE),
        (request("elsewhere", "sibling", root="root"), NONE, CONFIDENTIAL),
        (request("", "root"), NONE, CONFIDENTIAL),
        (request("s2", "other"), NONE, NONE),
        (request("", "child2"), NONE, NONE),
        (request("s", "other", tenant="evil"), NONE, NONE),
    ):
        assert await labels.find(asked) == FoundLabels(session, token)


async def test_calls_without_a_session_share_that_of_their_chain(engine: AsyncEngine) -> None:
    labels = PostgresSessionLabels(engine)
    await labels.add(request("", "child", root="root"), ["confidential"], "decisions/1")
    assert await labels.find(request("", "sibling", root="root")) == FoundLabels(CONFIDENTIAL, CONFIDENTIAL)
    assert await labels.find(request("s", "root")) == FoundLabels(NONE, CONFIDENTIAL)


async def test_a_subject_without_token_and_session_has_no_labels(engine: AsyncEngine) -> None:
    labels = PostgresSessionLabels(engine)
    assert await labels.add(request("", ""), ["confidential"], "decisions/1") == ()
    assert await labels.find(request("", "")) == FoundLabels(NONE, NONE)


async def test_only_missing_labels_are_added(engine: AsyncEngine) -> None:
    ours, theirs = PostgresSessionLabels(engine), PostgresSessionLabels(engine)
    assert await ours.add(request("s"), ["b", "a"], "decisions/1") == ("a", "b")
    assert await ours.add(request("s"), ["a", "b"], "decisions/2") == ()
    assert await theirs.add(request("s"), ["a", "c"], "decisions/3") == ("c",)
    assert (await ours.find(request("s"))).session == {"a", "b", "c"}


async def test_a_removed_label_stays_on_record_and_may_come_again(engine: AsyncEngine) -> None:
    labels, asked = PostgresSessionLabels(engine), request("s", "child", root="root")
    await labels.add(asked, ["confidential", "pii"], "decisions/1")
    await labels.add(request("s2", "child", root="root"), ["confidential"], "decisions/2")
    assert await labels.clear(asked, ["confidential", "other"], "decisions/3") == ("confidential",)
    assert await labels.clear(asked, ["confidential"], "decisions/4") == ()
    # Of the other session it was not removed.
    assert await labels.find(asked) == FoundLabels(frozenset({"pii"}), frozenset({"confidential", "pii"}))
    assert await labels.add(asked, ["confidential"], "decisions/5") == ("confidential",)
    session, chain = label_scopes(asked)
    found = await labels.sources([session, chain])
    seen = [(one.label, one.decision, one.cleared_at is None, one.invocation_id) for one in found[session]]
    assert sorted(seen) == [
        ("confidential", "decisions/1", False, "i-s"),
        ("confidential", "decisions/5", True, "i-s"),
        ("pii", "decisions/1", True, "i-s"),
    ]
    assert found[session][0].tool_version == "tools/acme.pay/versions/1.2.3"
    assert {one.decision for one in found[chain]} == {"decisions/1", "decisions/2", "decisions/5"}
    removed = next(one for one in found[session] if one.cleared_at is not None)
    assert removed.cleared_at is not None
    assert held_at(removed, removed.cleared_at)
    assert not held_at(removed, removed.added_at)


def test_scopes_name_the_session_and_the_chain() -> None:
    assert [json.loads(one) for one in label_scopes(request("s", "child", root="root"))] == [
        ["session", "acme", "s"],
        ["token", "root"],
    ]
    assert [json.loads(one) for one in label_scopes(request("", "t"))] == [["token", "t"]]
    assert label_scopes(request("", "")) == []


async def test_of_concurrent_calls_one_adds_a_label(engine: AsyncEngine) -> None:
    replicas = [PostgresSessionLabels(engine) for _ in range(5)]
    added = await asyncio.gather(*(labels.add(request("s"), ["a"], "decisions/1") for labels in replicas))
    assert sorted(added) == [(), (), (), (), ("a",)]


async def test_an_added_label_is_visible_to_every_replica_at_once(engine: AsyncEngine) -> None:
    """A call that follows the response of the labeled call must see the label."""
    writer, reader = PostgresSessionLabels(engine), PostgresSessionLabels(engine)
    for index in range(20):
        await reader.find(request("s"))
        await writer.add(request("s"), [f"label{index}"], "decisions/1")
        assert f"label{index}" in (await reader.find(request("s"))).session


async def test_session_labels_fail_without_a_database(database: Callable[[str], str]) -> None:
    gone = PostgresSessionLabels(engine_for("postgresql://nobody:x@127.0.0.1:1/none", schema="authz"))
    asked = request("s")
    for operation in (gone.find(asked), gone.add(asked, ["a"], "decisions/1"), gone.clear(asked, ["a"], "decisions/1")):
        with pytest.raises(MeshError) as caught:
            await operation
        assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
