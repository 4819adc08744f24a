"""Validates with jsonschema-rs: JSON Schema 2020-12, formats asserted, regular expressions bounded, no fetching."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import jsonschema_rs

from libs.common.json.bounded_validator import LINEAR_PATTERNS, MASK
from libs.common.json.json_pointer import pointer_of
from libs.common.json.jsonio import JsonValue
from services.registry.domain.ports import Finding

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Limits the response to a hostile value.
MAX_FINDINGS = 20


class JsonSchemaChecker:
    """Checks schemas against the meta-schema, and values against schemas."""

    def __init__(self) -> None:
        self._meta = _validator({"$ref": DIALECT})

    def schema_findings(self, schema: JsonValue) -> Sequence[Finding]:
        """Return why a value is not a schema: violations of the meta-schema, or a compilation error."""
        findings = _findings(self._meta.iter_errors(schema))
        return findings or _compiled(schema)[1]

    def value_findings(self, schema: Mapping[str, Any], value: JsonValue) -> Sequence[Finding]:
        """Return where a value violates a schema. A schema that cannot be compiled yields a finding for every value."""
        validator, findings = _compiled(dict(schema))
        return findings if validator is None else _findings(validator.iter_errors(value))


def _compiled(schema: Any) -> tuple[Any, list[Finding]]:
    try:
        return _validator(schema), []
    except jsonschema_rs.ValidationError as error:
        # The library's message quotes addresses and patterns, so it is not passed on.
        return None, [Finding(_pointer(error), "compilation", "cannot be compiled")]


def _validator(schema: Any) -> Any:
    return jsonschema_rs.Draft202012Validator(
        schema, validate_formats=True, retriever=_refuse, mask=MASK, pattern_options=LINEAR_PATTERNS
    )


def _findings(errors: Iterable[Any]) -> list[Finding]:
    findings = (Finding(_pointer(error), error.kind.name, error.message) for error in islice(errors, MAX_FINDINGS))
    # The vocabularies of the meta-schema repeat the same errors.
    return list(dict.fromkeys(findings))


def _pointer(error: Any) -> str:
    return pointer_of(error.instance_path)


def _refuse(uri: str) -> Any:
    raise ValueError("references to other documents are not followed")
