"""The admission rule that tools which write show by an example how they are called."""

from __future__ import annotations

from collections.abc import Iterator

from libs.common.errors import Violation
from libs.common.json.jsonio import dump
from services.registry.domain.ports import SchemaChecker
from services.registry.domain.publishing.manifest import Manifest
from services.registry.domain.publishing.rules.schemas import check_schemas
from services.registry.domain.publishing.sample_arguments import sample_arguments

_LONGEST = 400


def require_examples(manifest: Manifest, checker: SchemaChecker) -> Iterator[Violation]:
    """Require an example of a tool that writes: it is what can be tried of the tool, and what models copy."""
    if not manifest.mutates or manifest.examples:
        return
    # An unbounded schema is refused by other rules, and must not be evaluated.
    bounded = not any(check_schemas(manifest, checker))
    arguments = sample_arguments(manifest.input.get("schema"), checker) if bounded else None
    written = dump(arguments).decode() if arguments is not None else "{...}"
    if len(written) > _LONGEST:
        written = "{...}"
    message = f'is required for a tool that writes; write a real call: "examples": [{{"arguments": {written}}}]'
    yield Violation("manifest.input.examples", "examples.required", message)
