"""Classifies changes of manifest fields other than schemas as breaking, additive or neutral.

Each table row names a manifest field. `docs/compatibility.md` has the same tables with reasons.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from services.registry.domain.compatibility.differences import ChangeKind, Difference
from services.registry.domain.publishing.manifest import Document, Manifest, seconds
from services.registry.domain.publishing.rules.timing import CLASS_SECONDS

_BREAKING, _ADDITIVE, _NEUTRAL = ChangeKind.BREAKING, ChangeKind.ADDITIVE, ChangeKind.NEUTRAL

# Values from the mildest to the most severe. A step to the right breaks, a step to the left adds. An unset value has
# the default in UNSET.
ORDERED: dict[str, tuple[str, ...]] = {
    "mutation_class": ("read_only", "write_reversible", "write_irreversible"),
    "execution.timeout_class": ("interactive", "standard", "long_running", "async"),
    "permission.credential_propagation": ("none", "own", "narrowed"),
    "permission.approval": ("by_policy", "always"),
    "idempotency.uncertain_outcome": ("fail", "query_status", "repeat"),
    "interface.safety.sandbox_tier": ("machine", "kernel", "process", "in_process"),
    "observability.audit_detail": ("summary", "digest"),
}
UNSET = {
    "permission.credential_propagation": "none",
    "permission.approval": "by_policy",
    "idempotency.uncertain_outcome": "fail",
    "interface.safety.sandbox_tier": "machine",
}
# Lists whose members callers or operators have approved: adding a member breaks.
GROWING_BREAKS = (
    "permission.required_scopes",
    "permission.required_permissions",
    "permission.data_access",
    "permission.credential_refs",
    "permission.result_labels",
    "side_effects",
    "execution.network_policy.allowed_domains",
    "execution.secrets",
    "output.media_types",
    "interface.availability.feature_gates",
    "interface.availability.required_credentials",
)
# Lists that callers rely on: removing a member breaks.
SHRINKING_BREAKS = (
    "capability_refs",
    "input.media_types",
    "input.sensitive_fields",
    "output.sensitive_fields",
    "interface.availability.model_support",
)
# Guarantees: dropping one breaks.
CLAIMS = (
    "dry_run_supported",
    "execution.cancellation_supported",
    "execution.progress_supported",
    "interface.safety.read_only",
    "interface.safety.non_destructive",
    "interface.safety.closed_world",
    "interface.safety.concurrency_safe",
    "execution.network_policy.deny_all_egress",
    "output.persistence_opt_out",
)
# Requirements on the caller or on a person: adding one breaks.
DEMANDS = ("interface.safety.requires_user_interaction", "scheduling.context_modifiers_allowed")
# Promises: a slower or a missing one breaks.
_PROMISED_TIMES, _AVAILABILITY = ("sla.latency_p50", "sla.latency_p95", "sla.latency_p99"), "sla.availability"
# Mutation policies with which the mesh applies defaults and coerces arguments.
FILLING = frozenset({"defaults", "hooks"})
# Fields for which every change breaks.
FIXED = ("input.argument_mode", "output.paginated")
# Fields that do not describe the behaviour of a call, and the schemas, which are compared elsewhere.
SILENT = frozenset(
    {"version", "changelog", "breaking_changes", "schema_version", "input.schema", "input.runtime_schema"}
    | {"output.schema", "output.error_schema"}
)


def differences(old: Manifest, new: Manifest) -> Iterator[Difference]:
    """Yield every difference outside the schemas."""
    reported = set[str]()
    for rule in (
        _severity_changes,
        _list_changes,
        _guarantee_changes,
        _field_changes,
        _idempotency_changes,
        _limit_changes,
    ):
        for difference in rule(old.document, new.document):
            reported.add(difference.path)
            yield difference
    if new.document.get("breaking_changes"):
        yield _difference("breaking_changes", _BREAKING, "declared as breaking by the author")
    yield from _neutral_changes(old.document, new.document, reported)


def _severity_changes(old: Document, new: Document) -> Iterator[Difference]:
    for path, words in ORDERED.items():
        before, after = _value_at(old, path) or UNSET.get(path), _value_at(new, path) or UNSET.get(path)
        if before == after or before not in words or after not in words:
            continue
        worse = words.index(after) > words.index(before)
        yield _difference(path, _BREAKING if worse else _ADDITIVE, f"went from {before} to {after}")


def _list_changes(old: Document, new: Document) -> Iterator[Difference]:
    for paths, more, less in ((GROWING_BREAKS, _BREAKING, _ADDITIVE), (SHRINKING_BREAKS, _ADDITIVE, _BREAKING)):
        for path in paths:
            before, after = _members(old, path), _members(new, path)
            if after - before:
                yield _difference(path, more, "has a new member")
            if before - after:
                yield _difference(path, less, "lost a member")


def _guarantee_changes(old: Document, new: Document) -> Iterator[Difference]:
    for paths, gained, lost in ((CLAIMS, _ADDITIVE, _BREAKING), (DEMANDS, _BREAKING, _ADDITIVE)):
        for path in paths:
            before, after = bool(_value_at(old, path)), bool(_value_at(new, path))
            if before != after:
                yield _difference(path, gained if after else lost, "is set now" if after else "is no longer set")


def _field_changes(old: Document, new: Document) -> Iterator[Difference]:
    for path in FIXED:
        if _value_at(old, path) != _value_at(new, path) and {_value_at(old, path), _value_at(new, path)} != {
            None,
            "object",
        }:
            yield _difference(path, _BREAKING, "has changed")
    before, after = _value_at(old, "compensation_tool"), _value_at(new, "compensation_tool")
    if before != after:
        kind = _BREAKING if before and not after else _ADDITIVE
        yield _difference("compensation_tool", kind, "has changed" if after else "was removed")
    filled, fills = (_value_at(document, "input.mutation_policy") in FILLING for document in (old, new))
    if filled != fills:
        kind = _ADDITIVE if fills else _BREAKING
        yield _difference(
            "input.mutation_policy",
            kind,
            "defaults are applied now" if fills else "defaults are no longer applied",
        )
    rise = (_value_at(new, "permission.impact_scope") or 0) - (_value_at(old, "permission.impact_scope") or 0)
    if rise:
        yield _difference("permission.impact_scope", _BREAKING if rise > 0 else _ADDITIVE, "has changed")


def _idempotency_changes(old: Document, new: Document) -> Iterator[Difference]:
    before, after = _value_at(old, "idempotency.mode"), _value_at(new, "idempotency.mode")
    if before != after:
        # With key_required, calls without a key are refused; without a mode, retries are undefined.
        kind = _BREAKING if after == "key_required" or after is None else _ADDITIVE
        yield _difference("idempotency.mode", kind, f"went from {before or 'unset'} to {after or 'unset'}")
    known, remembered = _window(old), _window(new)
    if before is not None and after is not None and known != remembered:
        kind = _BREAKING if remembered < known else _ADDITIVE
        yield _difference("idempotency.window", kind, "has changed")


def _limit_changes(old: Document, new: Document) -> Iterator[Difference]:
    """Yield changed limits: callers can run into a limit, so it is part of the contract."""
    before, after = (_seconds(document, "execution.timeout_max") for document in (old, new))
    if before != after and _value_at(old, "execution.timeout_class") == _value_at(new, "execution.timeout_class"):
        yield _difference("execution.timeout_max", _BREAKING if after < before else _ADDITIVE, "has changed")
    for field in _PROMISED_TIMES:
        fast, slow = _value_at(old, field), _value_at(new, field)
        if fast != slow:
            kept = slow is not None and (fast is None or seconds(slow) < seconds(fast))
            yield _difference(field, _ADDITIVE if kept else _BREAKING, "promises more" if kept else "promises less")
    gained = (_value_at(new, _AVAILABILITY) or 0) - (_value_at(old, _AVAILABILITY) or 0)
    if gained:
        yield _difference(_AVAILABILITY, _ADDITIVE if gained > 0 else _BREAKING, "has changed")
    small, smaller = _value_at(old, "output.max_inline_bytes"), _value_at(new, "output.max_inline_bytes")
    if small != smaller:
        yield _difference("output.max_inline_bytes", _ADDITIVE, "has changed")


def _neutral_changes(old: Document, new: Document, reported: set[str]) -> Iterator[Difference]:
    before, after = dict(_leaves(old, "")), dict(_leaves(new, ""))
    for path in sorted(before.keys() | after.keys()):
        known = f"manifest.{path}" in reported or any(
            f"manifest.{path}".startswith(f"{path_reported}.") for path_reported in reported
        )
        if path not in SILENT and not known and before.get(path) != after.get(path):
            yield _difference(path, _NEUTRAL, "has changed without effect on callers")


def _leaves(document: Document, prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and path not in SILENT and path != "annotations":
            yield from _leaves(value, f"{path}.")
        else:
            yield path, value


def _value_at(document: Document, path: str) -> Any:
    value: Any = document
    for step in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def _members(document: Document, path: str) -> frozenset[Any]:
    members = _value_at(document, path) or ()
    return frozenset(tuple(sorted(item.items())) if isinstance(item, dict) else item for item in members)


def _window(document: Document) -> Any:
    given = _value_at(document, "idempotency.window")
    return seconds(given) if given else max(3600, 2 * CLASS_SECONDS[_value_at(document, "execution.timeout_class")])


def _seconds(document: Document, path: str) -> Any:
    given = _value_at(document, path)
    return seconds(given) if given else CLASS_SECONDS[_value_at(document, "execution.timeout_class")]


def _difference(path: str, kind: ChangeKind, message: str) -> Difference:
    return Difference(f"manifest.{path}", path.rpartition(".")[2], kind, message)
