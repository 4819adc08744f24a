"""The JSON Schema checker."""

from __future__ import annotations

import socket

from services.registry.adapters.json_schemas import MAX_FINDINGS, JsonSchemaChecker

CHECKER = JsonSchemaChecker()


def test_every_fault_of_a_schema_is_found_with_its_place() -> None:
    found = CHECKER.schema_findings({"type": "objekt", "properties": {"a/b": {"minLength": -1}}})
    assert {finding.pointer for finding in found} == {"/type", "/properties/a~1b/minLength"}


def test_formats_are_asserted() -> None:
    found = CHECKER.value_findings({"type": "string", "format": "date-time"}, "yesterday")
    assert [finding.keyword for finding in found] == ["format"]


def test_a_reference_to_another_document_fetches_nothing() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        found = CHECKER.schema_findings({"$ref": address})
        assert [finding.keyword for finding in found] == ["compilation"]
        assert address not in found[0].message
        try:
            listener.accept()
        except BlockingIOError:
            return
    raise AssertionError("the schema was asked for over the network")


def test_findings_are_bounded() -> None:
    assert len(CHECKER.value_findings({"items": {"type": "string"}}, list(range(1000)))) == MAX_FINDINGS


def test_integers_of_64_bits_are_compared_exactly() -> None:
    schema = {"maximum": 2**64 - 2}
    assert CHECKER.value_findings(schema, 2**64 - 2) == []
    assert len(CHECKER.value_findings(schema, 2**64 - 1)) == 1
