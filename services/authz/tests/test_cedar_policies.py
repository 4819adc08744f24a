"""A policy set is refused before it can do harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.authz.adapters.cedar_policies import SCHEMA_FILE, PolicySetError, load_policies
from services.authz.tests.planted import ask, forbid, permit, plant
from services.authz.wiring import POLICIES


def test_the_shipped_set_is_valid_and_reads_neither_arguments_nor_session() -> None:
    shipped = load_policies(POLICIES)
    assert not shipped.reads_arguments_or_session
    assert [notes.id for notes in shipped.notes.values()][:2] == ["covered-calls-may-run", "reading-runs-free"]


def test_the_version_is_the_digest_of_every_text(tmp_path: Path) -> None:
    versions = {
        load_policies(plant(tmp_path / "a", permit("p"))).version,
        load_policies(plant(tmp_path / "b", permit("q"))).version,
    }
    schema = plant(tmp_path / "c", permit("p")) / SCHEMA_FILE
    schema.write_text(schema.read_text() + "\n// changed")
    versions.add(load_policies(tmp_path / "c").version)
    assert len(versions) == 3
    assert all(version.startswith("sha256:") for version in versions)
    assert load_policies(plant(tmp_path / "d", permit("p"))).version in versions


@pytest.mark.parametrize(
    "text",
    [
        "permit (principal",
        permit("misspelt", "principal.trust_lvl > 1"),
        permit("wrong-type", "resource.impact_scope == true"),
        permit("unknown-action").replace("principal, action,", 'principal, action == Action::"delete",'),
        permit("template").replace("principal,", "principal == ?principal,"),
        "",
        permit("no-reason").replace("@reason", "@because"),
        permit("no-id").replace("@id", "@name"),
        permit("twice") + permit("twice"),
        permit("untrue").replace('"allow"', '"deny"'),
        forbid("untrue").replace('"deny"', '"needs_approval"'),
        ask("untrue").replace('"needs_approval"', '"deny"'),
        forbid("every-action").replace('action == Action::"invoke"', "action"),
        ask("nobody", notes='@quorum("0")'),
        ask("half", notes='@quorum("1.5")'),
    ],
)
def test_what_is_wrong_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(PolicySetError) as caught:
        load_policies(plant(tmp_path, text))
    assert caught.value.problems


def test_everything_that_is_wrong_is_named_at_once(tmp_path: Path) -> None:
    text = permit("a").replace("@reason", "@because") + forbid("b").replace('"deny"', '"allow"')
    with pytest.raises(PolicySetError) as caught:
        load_policies(plant(tmp_path, text))
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    ("condition", "reads"),
    [
        ('context.environment == "prod"', False),
        ('context has environment && principal.tenant == "a"', False),
        ('context.session_id == "s"', True),
        ('["a"].contains(context.arguments_digest)', True),
        ('principal.trust_level > 5 && (if context.session_id == "s" then true else false)', True),
        ("context == context", True),
        ('{"session_id": resource.version}.session_id == "1"', False),
    ],
)
def test_it_is_known_whether_answers_may_differ_from_call_to_call(tmp_path: Path, condition: str, reads: bool) -> None:
    loaded = load_policies(plant(tmp_path, permit("p"), forbid("f", condition)))
    assert loaded.reads_arguments_or_session is reads


def test_annotations_name_the_approvers(tmp_path: Path) -> None:
    text = [permit("p"), ask("one"), ask("two", notes='@approvers("security, legal") @quorum("2")')]
    notes = load_policies(plant(tmp_path, *text)).notes
    assert [(n.approvers, n.quorum) for n in notes.values()] == [
        (("approvers",), 1),
        (("approvers",), 1),
        (("security", "legal"), 2),
    ]
