"""Compiles the schemas of answers, which tools write at run time."""

from __future__ import annotations

from libs.common.errors import MeshError
from services.executor.adapters.registry.json_schema import SchemaError, output_contract
from services.executor.domain import errors
from services.executor.domain.tool import Contract

MAX_BYTES = 64 << 10


def compile_answer_schema(schema: bytes) -> Contract:
    """Return the contract of an answer. Raises EXECUTION_FAILED for a schema that cannot be used."""
    if len(schema) > MAX_BYTES:
        raise errors.execution_failed(f"the schema of the tool's question has more than {MAX_BYTES} bytes")
    try:
        return output_contract(schema, ())
    except (SchemaError, MeshError):
        raise errors.execution_failed(
            "the schema of the tool's question is not a JSON Schema that can be used"
        ) from None
