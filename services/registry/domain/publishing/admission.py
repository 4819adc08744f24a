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
from services.registry.domain.publishing.rules import access, effects, form, schemas, timing

AdmissionRule: TypeAlias = Callable[[Manifest], Iterator[Violation]]
SchemaAdmissionRule: TypeAlias = Callable[[Manifest, SchemaChecker], Iterator[Violation]]

RULES: tuple[AdmissionRule, ...] = (
    form.fits_into_an_answer,
    form.text_can_be_stored,
    form.version_is_unambiguous,
    form.aliases_can_be_called,
    form.pointers_are_pointers,
    schemas.input_takes_an_object,
    schemas.input_is_strict,
    schemas.internal_fields_stay_internal,
    schemas.pages_are_declared,
    access.scopes_are_required,
    access.mesh_code_is_the_meshs,
    effects.side_effects_match_the_class,
    effects.safety_claims_match_the_class,
    effects.repetition_is_governed,
    effects.irreversible_can_be_previewed,
    effects.reversible_can_be_undone,
    timing.timeouts_fit_their_class,
    timing.keys_are_remembered_long_enough,
    form.calls_are_observed,
)
SCHEMA_RULES: tuple[SchemaAdmissionRule, ...] = (
    schemas.schemas_are_valid,
    schemas.examples_hold,
)


def violations(manifest: Manifest, checker: SchemaChecker) -> list[Violation]:
    """Return every violation of the admission rules."""
    results = [violation for rule in RULES for violation in rule(manifest)]
    results += [violation for rule in SCHEMA_RULES for violation in rule(manifest, checker)]
    return results
