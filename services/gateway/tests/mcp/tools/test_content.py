"""Results of the executor as results of `tools/call`."""

from __future__ import annotations

from toolmesh.executor.v1 import result_envelope_pb2 as pb

from libs.common.errors import MeshError, Reason
from services.gateway.mcp.protocol import DEPRECATION_META_KEY, STALE_META_KEY, WARNINGS_META_KEY
from services.gateway.mcp.tools.content import call_result, content_result, error_result

READ = "2026-01-01T00:00:00Z"


def result(source: pb.ResultSource.ValueType, structured: bytes = b'{"n":1}') -> pb.ResultEnvelope:
    envelope = pb.ResultEnvelope(structured_content=structured, provenance=pb.Provenance(source=source))
    envelope.provenance.retrieve_time.FromJsonString(READ)
    return envelope


def test_a_stale_result_is_marked_for_the_client_and_for_the_model() -> None:
    stale = call_result(result(pb.RESULT_SOURCE_STALE_CACHE), b'{"n":1}', stateless=True)
    assert stale["_meta"][STALE_META_KEY] == READ
    assert READ in stale["content"][-1]["text"]
    structured = b'{"content":[]}'
    passed_on = content_result(result(pb.RESULT_SOURCE_STALE_CACHE, structured), structured)
    assert READ in passed_on["content"][-1]["text"]


def test_other_results_have_no_such_mark() -> None:
    for source in (pb.RESULT_SOURCE_COMPUTED, pb.RESULT_SOURCE_CACHE):
        shown = call_result(result(source), b'{"n":1}', stateless=True)
        assert STALE_META_KEY not in shown["_meta"]
        assert len(shown["content"]) == 1


def test_warnings_reach_the_client_and_the_model() -> None:
    warned = result(pb.RESULT_SOURCE_COMPUTED)
    warned.warnings.add(code="look_alike", message="easily taken for another", resource="tools/acme.x")
    shown = call_result(warned, b'{"n":1}', stateless=True)
    expected = {"code": "look_alike", "message": "easily taken for another", "resource": "tools/acme.x"}
    assert shown["_meta"][WARNINGS_META_KEY] == [expected]
    assert expected["message"] in shown["content"][-1]["text"]


def test_the_end_of_a_version_and_its_successor_reach_the_client_and_the_model() -> None:
    ending = result(pb.RESULT_SOURCE_COMPUTED)
    assert DEPRECATION_META_KEY not in call_result(ending, b'{"n":1}', stateless=True)["_meta"]
    ending.provenance.tool_version = "tools/acme.pay/versions/1.0.0"
    ending.deprecation.SetInParent()
    shown = call_result(ending, b'{"n":1}', stateless=True)
    assert shown["_meta"][DEPRECATION_META_KEY] == {}
    assert ending.provenance.tool_version in shown["content"][-1]["text"]
    ending.deprecation.sunset_time.FromJsonString(READ)
    ending.deprecation.successor = "tools/acme.pay/versions/2.0.0"
    shown = call_result(ending, b'{"n":1}', stateless=True)
    notice = {"sunsetTime": READ, "successor": "tools/acme.pay/versions/2.0.0"}
    assert shown["_meta"][DEPRECATION_META_KEY] == notice
    assert all(text in shown["content"][-1]["text"] for text in notice.values())


def test_a_refusal_names_the_successor_to_the_model() -> None:
    successor = "tools/acme.pay/versions/2.0.0"
    for reason in (Reason.TOOL_UNAVAILABLE, Reason.TOOL_DEPRECATED):
        [text] = error_result(MeshError(reason, metadata={"successor": successor}), "t")["content"]
        assert successor in text["text"]
