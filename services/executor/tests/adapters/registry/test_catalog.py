"""Resolution of references to versions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.registry.v1 import tool_version_pb2 as vpb

from libs.common.errors import MeshError, Reason
from libs.common.testing.clock import ManualClock
from libs.common.tool_names import ToolName
from services.executor.adapters.registry.catalog import Catalog
from services.executor.adapters.registry.compile_tool import compile_version
from services.executor.domain.tool import ToolTrust
from services.executor.tests.peers import registered
from services.executor.tests.samples import a_manifest


def catalog_of(*versions: tuple[str, str], clock: ManualClock | None = None, **changes: Any) -> Catalog:
    catalog = Catalog(clock or ManualClock())
    for number, state in versions:
        catalog.put(compile_version(registered(a_manifest(version=number, **changes), state)))
    return catalog


def refused(catalog: Catalog, reference: str, constraint: str = "") -> MeshError:
    with pytest.raises(MeshError) as caught:
        catalog.resolve(reference, constraint)
    return caught.value


@pytest.mark.parametrize(
    ("constraint", "version"),
    [("", "2.0.0"), ("latest", "2.0.0"), ("^1.0", "1.4.0"), ("~1.2", "1.2.0"), ("1.x", "1.4.0"), ("1.2.0", "1.2.0")],
)
def test_the_highest_matching_version_is_resolved(constraint: str, version: str) -> None:
    catalog = catalog_of(
        ("1.2.0", "AVAILABLE"), ("1.4.0", "AVAILABLE"), ("2.0.0", "AVAILABLE"), ("3.0.0-rc.1", "AVAILABLE")
    )
    for reference in ("say", "core.say", "tools/core.say"):
        assert catalog.resolve(reference, constraint).version == version


def test_a_version_that_is_not_deprecated_is_preferred() -> None:
    catalog = catalog_of(("1.0.0", "AVAILABLE"), ("2.0.0", "DEPRECATED"), ("3.0.0", "DISABLED"))
    assert catalog.resolve("say", "").version == "1.0.0"
    assert catalog.resolve("say", ">=2").version == "2.0.0"


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("SUNSET", Reason.TOOL_DEPRECATED),
        ("RETIRED", Reason.TOOL_DEPRECATED),
        ("DISABLED", Reason.TOOL_UNAVAILABLE),
        ("QUARANTINED", Reason.TOOL_UNAVAILABLE),
        ("REQUIRES_SETUP", Reason.TOOL_UNAVAILABLE),
        ("DRAFT", Reason.TOOL_UNAVAILABLE),
    ],
)
def test_an_unavailable_version_reports_its_state(state: str, reason: Reason) -> None:
    error = refused(catalog_of(("1.0.0", state)), "say")
    assert (error.reason, error.metadata["tool_version"]) == (reason, "tools/core.say/versions/1.0.0")


def test_unknown_names_versions_and_constraints_are_distinct_errors() -> None:
    catalog = catalog_of(("1.0.0", "AVAILABLE"))
    assert refused(catalog, "nobody").reason is Reason.TOOL_NOT_FOUND
    assert refused(catalog, "other.say").reason is Reason.TOOL_NOT_FOUND
    assert refused(catalog, "No Name").reason is Reason.TOOL_NOT_FOUND
    assert refused(catalog, "say", "^2").reason is Reason.TOOL_VERSION_NOT_FOUND
    assert refused(catalog, "say", "nonsense").reason is Reason.INVALID_REQUEST


def test_a_deprecated_version_ends_at_its_sunset_time() -> None:
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    catalog = Catalog(clock)
    sunset = Timestamp(seconds=int(clock.now().timestamp()) + 60)
    deprecation = vpb.Deprecation(sunset_time=sunset, successor="tools/core.say/versions/2.0.0")
    catalog.put(compile_version(registered(a_manifest(), "DEPRECATED", deprecation=deprecation)))
    assert catalog.resolve("say", "").deprecation is not None
    clock.advance(61)
    error = refused(catalog, "say")
    assert (error.reason, error.metadata["successor"]) == (Reason.TOOL_DEPRECATED, "tools/core.say/versions/2.0.0")


@pytest.mark.parametrize("state", ["QUARANTINED", "DISABLED", "RETIRED"])
def test_a_version_that_is_taken_out_of_use_names_its_announced_successor(state: str) -> None:
    catalog, withdrawn = catalog_of(("1.0.0", "AVAILABLE")), list[MeshError]()
    catalog.listen_withdrawn(withdrawn.append)
    successor = "tools/core.say/versions/2.0.0"
    catalog.put(compile_version(registered(a_manifest(), state, deprecation=vpb.Deprecation(successor=successor))))
    assert refused(catalog, "say").metadata["successor"] == successor
    # The error that ends its running calls names it, too.
    assert [error.metadata["successor"] for error in withdrawn] == [successor] * (state != "DISABLED")
    plain = refused(catalog_of(("1.0.0", state)), "say")
    assert "successor" not in plain.metadata


def test_an_alias_resolves_to_its_tool_and_never_shadows_one() -> None:
    catalog = catalog_of(("1.0.0", "AVAILABLE"), aliases=["speak"])
    assert catalog.resolve("speak", "").qualified == "core.say"
    catalog.put(compile_version(registered(a_manifest(tool_id="speak"))))
    assert catalog.resolve("speak", "").qualified == "core.speak"


def test_an_exact_build_resolves_to_that_build() -> None:
    catalog = catalog_of(("1.0.0+a", "AVAILABLE"), ("1.0.0+b", "AVAILABLE"))
    assert catalog.resolve("say", "1.0.0+a").version == "1.0.0+a"
    assert catalog.resolve("say", "2.x || 1.0.0+b").version == "1.0.0+b"
    assert refused(catalog, "say", "1.0.0+c").reason is Reason.TOOL_VERSION_NOT_FOUND


def test_a_cached_resolution_is_invalidated_by_changes() -> None:
    catalog = catalog_of(("1.0.0", "AVAILABLE"))
    assert catalog.resolve("say", "").version == "1.0.0"
    catalog.put(compile_version(registered(a_manifest(version="1.1.0"))))
    assert catalog.resolve("say", "").version == "1.1.0"
    catalog.remove("tools/core.say/versions/1.1.0")
    assert catalog.resolve("say", "").version == "1.0.0"
    catalog.retain([])
    assert refused(catalog, "say").reason is Reason.TOOL_NOT_FOUND
    assert len(catalog) == 0


def test_an_uncompilable_version_is_an_error_and_not_replaced_by_an_older_one() -> None:
    catalog = catalog_of(("1.0.0", "AVAILABLE"))
    broken = registered(a_manifest(version="2.0.0"))
    broken.manifest.input.schema = b"[]"
    catalog.put(compile_version(broken))
    error = refused(catalog, "say")
    assert (error.reason, error.metadata["state"]) == (Reason.TOOL_UNAVAILABLE, "broken")
    assert error.metadata["tool_version"] == "tools/core.say/versions/2.0.0"
    assert catalog.resolve("say", "^1").version == "1.0.0"


def test_current_aliases_override_those_of_the_manifest() -> None:
    catalog = catalog_of(("1.0.0", "AVAILABLE"), aliases=["speak"])
    assert catalog.resolve("speak", "").qualified == "core.say"
    moved = registered(a_manifest(aliases=["speak"]))
    moved.aliases.SetInParent()
    other = registered(a_manifest(tool_id="tell"))
    other.aliases.tool_ids.append("speak")
    for version in (moved, other):
        catalog.put(compile_version(version))
    assert catalog.resolve("speak", "").qualified == "core.tell"


def test_listeners_are_called_for_changes_and_not_for_repetitions() -> None:
    notified: list[str] = []
    catalog = Catalog(ManualClock())
    catalog.listen(notified.append)
    first, same = (compile_version(registered(a_manifest(), "AVAILABLE")) for _ in range(2))
    catalog.put(first)
    catalog.put(same)
    assert notified == []
    catalog.put(compile_version(registered(a_manifest(), "QUARANTINED")))
    assert notified == [first.digest]
    other = compile_version(registered(a_manifest(description="Says something else to somebody."), "AVAILABLE"))
    catalog.put(other)
    assert (notified, other.digest != first.digest) == ([first.digest] * 2, True)
    catalog.retain([])
    assert notified == [first.digest, first.digest, other.digest]


def test_a_quarantined_version_does_not_make_another_major_the_latest() -> None:
    catalog = catalog_of(("1.4.0", "AVAILABLE"), ("2.0.0", "QUARANTINED"))
    assert refused(catalog, "say").reason is Reason.TOOL_UNAVAILABLE
    assert refused(catalog, "say", ">=1").reason is Reason.TOOL_UNAVAILABLE
    assert catalog.resolve("say", "^1").version == "1.4.0"
    within = catalog_of(("2.0.0", "QUARANTINED"), ("2.1.0", "DEPRECATED"), ("1.0.0", "DISABLED"))
    assert within.resolve("say", "").version == "2.1.0"
    assert catalog_of(("1.4.0", "AVAILABLE"), ("1.5.0", "QUARANTINED")).resolve("say", "").version == "1.4.0"


def test_withdrawal_is_notified_once_and_other_changes_are_not() -> None:
    catalog = catalog_of(("1.0.0", "AVAILABLE"), ("1.1.0", "AVAILABLE"))
    withdrawn: list[tuple[str, str]] = []
    catalog.listen_withdrawn(lambda error: withdrawn.append((error.version.name, error.metadata["state"])))
    for state in ("DEPRECATED", "DISABLED", "QUARANTINED", "QUARANTINED"):
        catalog.put(compile_version(registered(a_manifest(version="1.0.0"), state)))
    assert withdrawn == [("tools/core.say/versions/1.0.0", "quarantined")]
    catalog.remove("tools/core.say/versions/1.1.0")
    assert withdrawn[1:] == [("tools/core.say/versions/1.1.0", "removed")]


def test_the_trust_in_a_tool_holds_for_every_version_at_once() -> None:
    catalog = catalog_of(("1.0.0", "AVAILABLE"), ("2.0.0", "AVAILABLE"))
    assert catalog.resolve("say", "").trust == ToolTrust()
    trusted = ToolTrust(80, 1e9, "ga", publisher_verified=True)
    catalog.set_trust(ToolName("core", "say"), trusted)
    catalog.set_trust(ToolName("core", "unknown"), trusted)
    assert {catalog.resolve("say", number).trust for number in ("1.0.0", "2.0.0")} == {trusted}
    assert len(catalog) == 2


def test_the_health_of_one_version_says_nothing_about_another() -> None:
    catalog = catalog_of(("1.0.0", "AVAILABLE"), ("2.0.0", "AVAILABLE"))
    assert catalog.resolve("say", "1.0.0").health == ""
    catalog.set_health("tools/core.say/versions/1.0.0", "unavailable")
    catalog.set_health("tools/core.unknown/versions/1.0.0", "unavailable")
    assert [catalog.resolve("say", number).health for number in ("1.0.0", "2.0.0")] == ["unavailable", ""]
    assert len(catalog) == 2
