"""The admission rules of a manifest.

Field rules of the proto contract are validated before. These rules span several fields, look inside schemas, or cannot
be expressed as field rules. Each rule is one function, and all violations are reported at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from libs.common.errors import Violation
from services.registry.domain.ports import SchemaChecker
from services.registry.domain.publishing.manifest import Manifest
from services.registry.domain.publishing.rules import (
    access,
    effects,
    examples,
    form,
    honoured,
    http_endpoint,
    provenance,
    schemas,
    secrets,
    timing,
)

AdmissionRule: TypeAlias = Callable[[Manifest], Iterator[Violation]]
SchemaAdmissionRule: TypeAlias = Callable[[Manifest, SchemaChecker], Iterator[Violation]]

RULES: tuple[AdmissionRule, ...] = (
    form.check_size,
    form.forbid_null_characters,
    form.check_version,
    form.check_aliases,
    form.check_json_pointers,
    schemas.require_object_input,
    schemas.require_strict_input,
    schemas.check_internal_fields,
    schemas.check_token_costs,
    schemas.check_pagination,
    access.require_scopes,
    access.reserve_builtin_code,
    honoured.refuse_unhonoured,
    honoured.check_entry_point,
    http_endpoint.check_http_endpoint,
    secrets.check_secrets,
    honoured.check_upstream_entry_point,
    effects.check_side_effects,
    effects.check_safety_claims,
    effects.require_idempotency,
    effects.require_dry_run,
    effects.require_compensation,
    effects.check_checkpoints,
    timing.check_timeouts,
    timing.check_idempotency_window,
    timing.check_service_level,
    form.require_audit_detail,
    provenance.verify_signature,
)
SCHEMA_RULES: tuple[SchemaAdmissionRule, ...] = (
    schemas.check_schemas,
    schemas.check_examples,
)
# Rules for what a person writes. The definitions of upstreams bring none of it: docs/manifests.md says what holds for
# their tools instead.
AUTHOR_RULES: tuple[SchemaAdmissionRule, ...] = (schemas.require_strict_objects, examples.require_examples)


def violations(manifest: Manifest, checker: SchemaChecker, *, imported: bool = False) -> list[Violation]:
    """Return every violation of the admission rules. `imported` manifests are those that the registry itself made of
    an upstream's definition."""
    results = [violation for rule in RULES for violation in rule(manifest)]
    for rule in SCHEMA_RULES if imported else (*SCHEMA_RULES, *AUTHOR_RULES):
        results += rule(manifest, checker)
    return results
