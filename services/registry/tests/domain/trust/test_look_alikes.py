"""Alike names: which pairs are shown, to whom, and in which order."""

from __future__ import annotations

from libs.common.tool_names import ToolName
from services.registry.domain.trust.look_alikes import (
    MOST_SHOWN,
    AlikePair,
    Holder,
    LookAlike,
    look_alikes_of,
    shown_pairs,
)

OLD, NEW = ToolName("globex", "send_email"), ToolName("acme", "send_emails")
TOOLS = AlikePair(NEW.qualified, OLD.qualified, "lookalike")
SPACES = AlikePair("globexx", "globex", "lookalike")
HOLDERS = {space: Holder(space, f"did:web:{space}") for space in ("acme", "globex", "globexx")}


def test_both_tools_of_a_pair_show_the_other() -> None:
    shown = shown_pairs([TOOLS], HOLDERS, ())
    assert look_alikes_of(NEW, shown) == (LookAlike("tools/globex.send_email", "lookalike", True),)
    assert look_alikes_of(OLD, shown) == (LookAlike("tools/acme.send_emails", "lookalike", False),)
    assert look_alikes_of(ToolName("acme", "find_order"), shown) == ()


def test_alike_namespaces_are_shown_for_every_tool_of_both() -> None:
    shown = shown_pairs([SPACES], HOLDERS, ())
    assert look_alikes_of(ToolName("globexx", "any"), shown) == (LookAlike("namespaces/globex", "lookalike", True),)
    assert look_alikes_of(OLD, shown) == (LookAlike("namespaces/globexx", "lookalike", False),)


def test_names_of_one_holder_and_revoked_tools_are_not_shown() -> None:
    assert not shown_pairs([TOOLS], {**HOLDERS, "acme": HOLDERS["globex"]}, ())
    assert shown_pairs([TOOLS], {**HOLDERS, "acme": Holder("globex", "did:web:acme")}, ())
    for revoked in (NEW, OLD):
        assert not shown_pairs([TOOLS], HOLDERS, {revoked.qualified})


def test_a_crowd_of_newcomers_does_not_hide_the_older_name() -> None:
    crowd = [AlikePair(f"acme.send_email{letter}", OLD.qualified, "lookalike") for letter in "abcdefghijkl"]
    first = AlikePair(OLD.qualified, "initech.send_emai", "lookalike")
    holders = {**HOLDERS, "initech": Holder("initech", "did:web:initech")}
    found = look_alikes_of(OLD, shown_pairs([*crowd, first], holders, ()))
    assert len(found) == MOST_SHOWN
    assert found[0] == LookAlike("tools/initech.send_emai", "lookalike", True)
