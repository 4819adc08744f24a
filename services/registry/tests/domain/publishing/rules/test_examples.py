"""The rule that asks for examples: it says what to write."""

from __future__ import annotations

import json
import re

from libs.common.json.jsonio import dump
from services.registry.adapters.json_schemas import JsonSchemaChecker
from services.registry.convert.manifest import manifest_of
from services.registry.domain.publishing.admission import violations
from services.registry.domain.publishing.rules.examples import require_examples
from services.registry.tests.manifests import writer

CHECKER = JsonSchemaChecker()


def test_what_the_violation_says_can_be_written_as_it_is() -> None:
    message = writer()
    del message.input.examples[:]
    [violation] = require_examples(manifest_of(message), CHECKER)
    written = re.search(r'"examples": (\[.*\])', violation.message)
    assert written is not None
    for example in json.loads(written.group(1)):
        message.input.examples.add(arguments=dump(example["arguments"]))
    assert violations(manifest_of(message), CHECKER) == []


def test_a_schema_that_is_refused_itself_is_not_evaluated() -> None:
    message = writer()
    del message.input.examples[:]
    message.input.schema = b'{"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}, "required": ["a"]}'
    [violation] = require_examples(manifest_of(message), CHECKER)
    assert "{...}" in violation.message
