"""Invalid policy sets are refused; annotations and limits are compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.authz.adapters.cedar.compiler import SCHEMA_FILE, PolicySetError, load_policies
from services.authz.domain.model import ContextField, Obligation
from services.authz.tests.policy_texts import ask, forbid, permit, write_policy_set
from services.authz.wiring import POLICIES


def test_the_shipped_set_is_valid_and_reads_nothing_of_one_call_but_labels() -> None:
    shipped = load_policies(POLICIES)
    assert {
        policy.annotations.id: policy.context_fields for policy in shipped.policies.values() if policy.context_fields
    } == {
        "nothing-leaves-after-confidential-reading": {ContextField.LABELS},
        "nothing-leaves-by-another-session": {ContextField.LABELS},
    }
    assert [policy.annotations.id for policy in shipped.policies.values()][:4] == [
        "covered-calls-may-run",
        "unknown-publishers-are-granted-by-name",
        "irreversible-writes-wait-for-a-working-tool",
        "reading-runs-free",
    ]


def test_the_version_is_the_digest_of_every_text(tmp_path: Path) -> None:
    versions = {
        load_policies(write_policy_set(tmp_path / "a", permit("p"))).version,
        load_policies(write_policy_set(tmp_path / "b", permit("q"))).version,
    }
    schema = write_policy_set(tmp_path / "c", permit("p")) / SCHEMA_FILE
    schema.write_text(schema.read_text() + "\n// changed")
    versions.add(load_policies(tmp_path / "c").version)
    assert len(versions) == 3
    assert all(version.startswith("sha256:") for version in versions)
    assert load_policies(write_policy_set(tmp_path / "d", permit("p"))).version in versions


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
        ask("nobody", annotations='@quorum("0")'),
        ask("half", annotations='@quorum("1.5")'),
        permit("asks-nobody").replace("@id", '@quorum("2") @id'),
        permit("misspelt").replace("@id", '@redcat("/a") @id'),
        permit("no-pointer").replace("@id", '@redact("a") @id'),
        permit("no-number").replace("@id", '@cap_rows("-1") @id'),
        permit("no-tier").replace("@id", '@sandbox_tier("high") @id'),
        permit("perhaps").replace("@id", '@require_dry_run("false") @id'),
        permit("perhaps").replace("@id", '@redact_pii("email") @id'),
        permit("no-label").replace("@id", '@label("Top Secret") @id'),
        forbid("label-on-what-never-runs").replace("@id", '@label("a") @id'),
        forbid("obligation-on-what-never-runs").replace("@id", '@cap_rows("1") @id'),
        permit("empty").replace('@id("empty")', '@id("")'),
    ],
)
def test_invalid_policies_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(PolicySetError) as caught:
        load_policies(write_policy_set(tmp_path, text))
    assert caught.value.problems


def test_everything_that_is_wrong_is_named_at_once(tmp_path: Path) -> None:
    text = [
        permit("a").replace("@reason", "@because"),
        forbid("b").replace('"deny"', '"allow"'),
        permit("c", "principal.nothing"),
        "permit (",
    ]
    with pytest.raises(PolicySetError) as caught:
        load_policies(write_policy_set(tmp_path, *text))
    found = [(problem.line, problem.rule, problem.policy) for problem in caught.value.problems]
    assert found == [
        (1, "annotation", "a"),
        (1, "annotation", "a"),
        (2, "annotation", "b"),
        (3, "type", "c"),
        (4, "syntax", ""),
    ]


def test_annotations_name_the_approvers(tmp_path: Path) -> None:
    text = [permit("p"), ask("one"), ask("two", annotations='@approvers("security, legal") @quorum("2")')]
    policies = load_policies(write_policy_set(tmp_path, *text)).policies
    assert [(policy.annotations.approvers, policy.annotations.quorum) for policy in policies.values()] == [
        (("approvers",), 1),
        (("approvers",), 1),
        (("security", "legal"), 2),
    ]


def test_annotations_name_obligations_and_labels(tmp_path: Path) -> None:
    notes = (
        '@redact("/a, /b/*/c") @cap_rows("100") @sandbox_tier("2") @require_dry_run("true") @redact_pii("true")'
        ' @label("secret, pii")'
    )
    (policy,) = load_policies(write_policy_set(tmp_path, permit("p").replace("@id", f"{notes} @id"))).policies.values()
    assert policy.annotations.obligations == (
        Obligation("redact_fields", ("/a", "/b/*/c")),
        Obligation("cap_rows", ("100",)),
        Obligation("sandbox_tier", ("2",)),
        Obligation("dry_run"),
        Obligation("redact_pii"),
    )
    assert policy.annotations.labels == ("secret", "pii")


def test_limits_are_a_part_of_the_set(tmp_path: Path) -> None:
    folder = write_policy_set(tmp_path, permit("p"))
    without = load_policies(folder).version
    rule = '{"id": "a", "calls": 5, "window_seconds": 60}'
    (folder / "limits.json").write_text(f'{{"limits": [{rule}]}}')
    loaded = load_policies(folder)
    assert [each.id for each in loaded.limits.rules] == ["a"]
    assert loaded.version != without
    (folder / "limits.json").write_text(f'{{\n"limits": [{rule}')
    with pytest.raises(PolicySetError) as caught:
        load_policies(folder)
    assert {(problem.document, problem.rule) for problem in caught.value.problems} == {("limits.json", "syntax")}


def test_ids_are_unique_across_documents(tmp_path: Path) -> None:
    folder = write_policy_set(tmp_path, permit("p"))
    (folder / "second.cedar").write_text("\n" + permit("p"))
    with pytest.raises(PolicySetError) as caught:
        load_policies(folder)
    (problem,) = caught.value.problems
    assert (problem.document, problem.line, problem.policy) == ("second.cedar", 2, "p")
