"""Every kind of double as an argument and as a result of a real mesh: both records of each call hold it in canonical
form, and a computation that shares nothing with the mesh finds the same digests and leaf hashes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from toolmesh.audit.v1 import audit_record_pb2 as record_pb
from toolmesh.audit.v1 import audit_service_pb2 as audit_pb
from toolmesh.audit.v1 import audit_service_pb2_grpc as audit_rpc

from tests.harness.evidence import rfc6962
from tests.harness.evidence.es6_numbers import es6_doubles
from tests.harness.mesh import Mesh, cli, invoke

# The boundary numbers and the run of neighbours at the head of the sequence, then 10,000 pseudo-random doubles.
DOUBLES = 12_168
PER_CALL = 100


def es6_form(number: float) -> str:
    """Return a double as ECMAScript writes it (Number::toString), from its shortest decimal digits."""
    if number == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    text = "".join(map(str, digits))
    point = len(text) + int(exponent)
    if 0 < point <= 21:
        text = text.ljust(point, "0") if len(text) <= point else f"{text[:point]}.{text[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{text}"
    else:
        power = f"e{'+' if point > 0 else '-'}{abs(point - 1)}"
        text = f"{text[0]}.{text[1:]}{power}" if len(text) > 1 else text + power
    return "-" * sign + text


def canonical_call(numbers: Sequence[float], place: int) -> bytes:
    """Return the canonical form of the arguments of one call."""
    return f'{{"text":"{place}","value":[{",".join(map(es6_form, numbers))}]}}'.encode()


def test_every_double_is_on_record_as_an_argument_and_as_a_result(mesh: Mesh) -> None:
    doubles, token = es6_doubles(DOUBLES), mesh.token(tenant="numbers")
    expected: dict[str, bytes] = {}
    with mesh.edge_channel() as channel:
        for start in range(0, len(doubles), PER_CALL):
            numbers = doubles[start : start + PER_CALL]
            sent = json.dumps({"text": str(start), "value": numbers}).encode()
            result = invoke(channel, "echo", sent, token=token).result
            assert json.loads(result.structured_content)["value"] == numbers
            expected[result.invocation_id] = canonical_call(numbers, start)
        records = _records(channel, token, set(expected))
    for invocation_id, form in expected.items():
        decision, outcome = records[invocation_id]
        for logged in (decision, outcome):
            _assert_holds(logged, form)
        assert outcome.record.status == record_pb.RECORD_STATUS_SUCCESS
        assert outcome.record.result_digest == digest_of(form)
        assert b'"result_summary":' + form in outcome.canonical_json
    report = json.loads(cli("audit", "verify", "--json", state=mesh.state).stdout)
    assert report["outcome"] == "ok"


def digest_of(form: bytes) -> str:
    """Return the digest of a canonical form."""
    return "sha256:" + hashlib.sha256(form).hexdigest()


def _assert_holds(logged: Any, form: bytes) -> None:
    assert logged.leaf_hash == rfc6962.leaf(logged.canonical_json)
    assert logged.record.arguments_digest == digest_of(form)
    # The hashed bytes, not the fields that are read from them.
    assert b'"arguments_summary":' + form in logged.canonical_json


def _records(channel: Any, token: str, invocations: set[str]) -> dict[str, tuple[Any, Any]]:
    """Return the decision and the outcome of each invocation. Fails if one has fewer or more records."""
    stub, found, page_token = audit_rpc.AuditServiceStub(channel), dict[str, list[Any]](), ""
    while True:
        request = audit_pb.QueryRecordsRequest(page_size=100, page_token=page_token)
        page = stub.QueryRecords(request, metadata=[("authorization", f"Bearer {token}")], timeout=30)
        for logged in page.records:
            found.setdefault(logged.record.invocation_id, []).append(logged)
        page_token = page.next_page_token
        if not page_token:
            break
    pairs = {}
    for invocation_id in invocations:
        decision, outcome = sorted(found[invocation_id], key=lambda logged: bool(logged.record.follows))
        assert decision.record.event_class == record_pb.EVENT_CLASS_PERMISSION_DECIDED
        assert outcome.record.follows == decision.record.record_id
        pairs[invocation_id] = (decision, outcome)
    return pairs
