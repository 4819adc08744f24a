"""What a result says beside its content, typed."""

from __future__ import annotations

from toolmesh.executor.v1 import result_envelope_pb2 as pb
from toolmesh_sdk import ArgumentChange, CallWarning, Compensation, Cost, Effect, RenderedResult
from toolmesh_sdk.result import parse_result

from sdk.tests.executor_samples import REF, SECRET, digest_of, envelope, persisted


def test_a_plain_result_has_none_of_it() -> None:
    result = parse_result(envelope({}))
    assert (result.stored, result.compensation, result.source) == (None, None, "unspecified")
    assert (result.effects, result.argument_changes, result.additional_context, result.costs) == ((), (), (), ())
    assert result.shown == RenderedResult("", "", "")


def test_every_part_is_read() -> None:
    result = parse_result(
        envelope(
            {},
            effects=[pb.ObservedEffect(resource="file:a", operation="create", source=pb.EFFECT_SOURCE_OBSERVED)],
            compensation=pb.Compensation(tool="tools/acme.undo", arguments=b'{"id": 1}'),
            argument_changes=[pb.ArgumentChange(path="/n", source="coercion", reason="integer")],
            additional_context=["mind the gap"],
            execution=pb.ExecutionMetadata(costs=[pb.CostPart(category="token", amount_micros=5, currency="USD")]),
            provenance=pb.Provenance(source=pb.RESULT_SOURCE_CACHE),
            warnings=[pb.CallWarning(code="look_alike", message="w", resource="tools/acme.x")],
            model_facing_content="m",
            ui_facing_summary="u",
            transcript_search_text="s",
        )
    )
    assert result.effects == (Effect("file:a", "create", "observed"),)
    assert result.compensation == Compensation("tools/acme.undo", {"id": 1})
    assert result.argument_changes == (ArgumentChange("/n", "coercion", "integer"),)
    assert (result.additional_context, result.source) == (("mind the gap",), "cache")
    assert result.warnings == (CallWarning("look_alike", "w", "tools/acme.x"),)
    assert result.costs == (Cost("token", 5, "USD"),)
    assert result.shown == RenderedResult("m", "u", "s")


def test_a_reference_is_read_and_keeps_its_secret_to_itself() -> None:
    stored = parse_result(envelope(persisted=[persisted(b"[1]")])).stored
    assert stored is not None
    assert (stored.ref, stored.size, stored.digest) == (REF, 3, digest_of(b"[1]"))
    assert (stored.media_type, stored.preview, stored.access_token) == ("application/json", b"[1]", SECRET)
    assert stored.expires is not None
    assert SECRET not in repr(stored)


def test_an_undo_without_arguments_says_so() -> None:
    undo = parse_result(envelope({}, compensation=pb.Compensation(tool="tools/acme.undo"))).compensation
    assert undo == Compensation("tools/acme.undo", None)


def test_unknown_enum_values_are_shown_as_numbers() -> None:
    newer = pb.ResultEnvelope.FromString(b"\x18\x63")  # status = 99
    assert parse_result(newer).status == "99"
