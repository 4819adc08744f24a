"""The reduced form of a record: what the mesh states stays, what others put into it goes."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from services.executor.adapters.audit.record_encoder import RecordEncoder, decode_fragment, encode_fragment
from services.executor.adapters.audit.reduced_record import REQUIRED, reduce_form
from services.executor.domain.model import PayloadDigest
from services.executor.tests.samples import a_record

ARGUMENTS, RESULT = PayloadDigest("sha256:a", b'{"text":"x"}'), PayloadDigest("sha256:b", b"[1]")


def form_of(**changes: Any) -> bytes:
    return decode_fragment(RecordEncoder("e-0").encode(a_record(arguments=ARGUMENTS, result=RESULT, **changes)))


def test_summaries_go_and_digests_stay() -> None:
    record, reduced = form_of(), orjson.loads(reduce_form(form_of(), "result_summary", "record.json"))
    assert {"arguments_summary", "result_summary"} <= set(orjson.loads(record))
    assert not {"arguments_summary", "result_summary"} & set(reduced)
    assert (reduced["arguments_digest"], reduced["result_digest"]) == ("sha256:a", "sha256:b")
    assert reduced["reduced_reason"] == "result_summary record.json"


@pytest.mark.parametrize("path", ["state", "caller.session_id", "side_effects[3]", "writer", "record_id", ""])
def test_the_violating_field_goes_unless_the_log_requires_it(path: str) -> None:
    reduced = orjson.loads(reduce_form(form_of(follows="d"), path, "a.rule"))
    assert set(REQUIRED) <= set(reduced)
    assert path not in set(reduced) - set(REQUIRED)
    assert "session_id" not in reduced["caller"]


def test_a_record_is_reduced_once_and_only_a_record_is() -> None:
    assert reduce_form(reduce_form(form_of(), "", "a.rule"), "", "a.rule") == b""
    assert reduce_form(b"{not json", "", "a.rule") == b""


def test_a_fragment_is_decoded_to_its_form() -> None:
    assert decode_fragment(encode_fragment(b"{}" * 100)) == b"{}" * 100
