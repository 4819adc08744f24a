"""The view of what was taken back."""

from __future__ import annotations

import pytest

from libs.common.auth.authority import Authority
from libs.common.auth.identity import Ancestor, Identity, TokenLineage, lineage_of
from libs.common.auth.revocations import MAX_SILENCE, RevocationView, Revoked
from libs.common.testing.clock import ManualClock

ALICE, BOT, SUB_BOT = "did:web:a.example:alice", "did:web:a.example:bot", "did:web:a.example:sub-bot"
FAR = 1e12


def ancestor(actor: str, token_id: str, key_id: str, issued_at: float) -> Ancestor:
    authority = Authority(subject=ALICE, tier="user", not_before=0, expires_at=FAR, audiences=("toolmesh",))
    return Ancestor(actor, token_id, key_id, issued_at, authority)


def a_leaf() -> TokenLineage:
    """Alice's token, made at 100, given to a bot at 200, given to another at 300."""
    lineage = (ancestor(ALICE, "root", "key-1", 100), ancestor(BOT, "middle", "key-2", 200))
    chain = tuple((one.actor, one.token_id) for one in lineage)
    leaf = Identity(ALICE, "leaf", FAR, tier="agent", agent=SUB_BOT, chain=chain, issued_at=300, key_id="key-3")
    object.__setattr__(leaf, "lineage", lineage)
    return lineage_of(leaf)


@pytest.fixture
def view() -> RevocationView:
    return RevocationView(ManualClock())


def tell(view: RevocationView, *revoked: Revoked, version: str = "set-1", snapshot: bool = False) -> None:
    view.apply(revoked, policy_set_version=version, snapshot=snapshot)


@pytest.mark.parametrize(
    "revoked",
    [
        *(Revoked("token", name, 0, FAR) for name in ("leaf", "middle", "root")),
        *(Revoked("key", name, 0, FAR) for name in ("key-1", "key-2", "key-3")),
        Revoked("subject", ALICE, 100, FAR),
        Revoked("subject", BOT, 200, FAR),
        Revoked("subject", SUB_BOT, 300, FAR),
    ],
)
def test_a_token_falls_with_everything_it_comes_from(view: RevocationView, revoked: Revoked) -> None:
    tell(view)
    assert view.clears(a_leaf())
    tell(view, revoked)
    assert view.refuses(a_leaf())
    assert not view.clears(a_leaf())


@pytest.mark.parametrize(
    "revoked",
    [
        Revoked("token", "another", 0, FAR),
        Revoked("token", "key-1", 0, FAR),
        Revoked("key", "another", 0, FAR),
        Revoked("subject", BOT, 199, FAR),
        Revoked("subject", "did:web:a.example:bob", FAR, FAR),
    ],
)
def test_and_with_nothing_else(view: RevocationView, revoked: Revoked) -> None:
    tell(view, revoked)
    assert view.clears(a_leaf())


def test_a_snapshot_replaces_and_a_change_adds(view: RevocationView) -> None:
    tell(view, Revoked("token", "root", 0, FAR), snapshot=True)
    tell(view, Revoked("token", "another", 0, FAR))
    assert view.refuses(a_leaf())
    tell(view, snapshot=True)
    assert not view.refuses(a_leaf())


def test_a_later_revocation_of_a_subject_reaches_further_and_an_earlier_one_takes_nothing_back(
    view: RevocationView,
) -> None:
    tell(view, Revoked("subject", SUB_BOT, 250, FAR))
    assert not view.refuses(a_leaf())
    tell(view, Revoked("subject", SUB_BOT, 350, FAR))
    tell(view, Revoked("subject", SUB_BOT, 250, FAR))
    assert view.refuses(a_leaf())


def test_what_is_over_is_forgotten_when_more_comes(view: RevocationView) -> None:
    now = view.clock.now().timestamp()
    tell(view, Revoked("token", "leaf", 0, now + 10), Revoked("key", "key-1", 0, FAR))
    assert view.revoked_keys() == {"key-1"}
    view.clock.advance(11)  # type: ignore[attr-defined]
    tell(view, Revoked("token", "another", 0, FAR), Revoked("key", "key-4", 0, FAR))
    assert view.revoked_keys() == {"key-1", "key-4"}
    assert len(view._marks) == 3


def test_a_view_that_heard_nothing_for_long_is_not_believed(view: RevocationView) -> None:
    assert not view.believed()
    tell(view)
    view.clock.advance(MAX_SILENCE)  # type: ignore[attr-defined]
    assert view.clears(a_leaf())
    view.clock.advance(0.1)  # type: ignore[attr-defined]
    assert not view.believed()
    assert not view.clears(a_leaf())
    tell(view)
    assert view.clears(a_leaf())


def test_sets_of_policies_that_were_replaced_are_outdated_until_they_return(view: RevocationView) -> None:
    tell(view, version="set-1")
    assert not view.outdated("set-1")
    assert not view.outdated("set-2")
    tell(view, version="set-2")
    assert view.outdated("set-1")
    tell(view, version="set-1")
    assert not view.outdated("set-1")
    assert view.outdated("set-2")


def test_listeners_hear_of_more_and_of_nothing_else(view: RevocationView) -> None:
    heard: list[bool] = []
    view.listen(lambda: heard.append(view.refuses(a_leaf())))
    tell(view)
    tell(view, Revoked("token", "leaf", 0, FAR))
    tell(view, Revoked("token", "leaf", 0, FAR))
    assert heard == [True]


def test_a_subject_loses_only_the_tokens_of_the_tenant_that_revokes(view: RevocationView) -> None:
    of = {tenant: lineage_of(Identity(ALICE, f"of-{tenant}", FAR, tenant=tenant, issued_at=50)) for tenant in "abc"}
    tell(view, Revoked("subject", ALICE, 100, FAR, "a"), Revoked("subject", ALICE, 40, FAR, "b"))
    assert [view.refuses(of[tenant]) for tenant in "abc"] == [True, False, False]
    tell(view, Revoked("subject", ALICE, 100, FAR))
    assert [view.refuses(of[tenant]) for tenant in "abc"] == [True, True, True]
