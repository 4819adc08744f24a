"""Erased payloads in an export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from toolmesh_sdk.audit.format.events import RecordLocation, attributes_of

from sdk.tests.audit.verify.offline.forgery import all_lines
from sdk.tests.audit_sample import (
    LOG,
    Key,
    Shard,
    a_log,
    erasure_of,
    first_of,
    path_of,
    payload_of,
    remanifest,
    root_of,
    verdict,
    write,
)


def test_an_erased_payload_is_accepted_where_a_record_says_so(tmp_path: Path, key: Key, shard: Shard) -> None:
    shard.payloads[15] = payload_of(erasure_of(15, shard, 4))
    shard.erased = {4}
    report = verdict(write(tmp_path / "export", key, shard, parquet=True, ocsf=True), key)
    assert report.exit_code == 0, report.to_dict()
    assert report.shards[0].erased == 1


def test_an_erasure_that_is_recorded_elsewhere_comes_with_its_proof(tmp_path: Path, key: Key) -> None:
    shards = a_log(5, 4)
    form = erasure_of(7, shards[0], 2)
    shards[1].payloads[2] = payload_of(form)
    shards[0].erased = {2}
    leaves = shards[1].leaves
    evidence_of = {
        "sequence": 2,
        "leaf_index": 2,
        "record": form,
        "path": [node.hex() for node in path_of(2, leaves)],
        "checkpoint": key.note(1, 4, root_of(leaves)),
    }

    def explained(evidence: Any) -> None:
        evidence.erasures = [evidence_of]

    assert verdict(write(tmp_path / "good", key, shards[0], evidence=explained), key).exit_code == 0
    for name, lie in (("sequence", 3), ("leaf_index", 1), ("checkpoint", Key().note(1, 4, root_of(leaves)))):
        lying = {**evidence_of, name: lie}
        folder = write(tmp_path / name, key, shards[0], evidence=lambda e, lying=lying: setattr(e, "erasures", [lying]))
        assert first_of(verdict(folder, key)) == ("unexplained_erasure", 2), name


def test_a_payload_that_is_just_gone_is_found(export: Path, key: Key) -> None:
    def without(lines: list[bytes]) -> list[bytes]:
        event = json.loads(lines[9])
        head = attributes_of(RecordLocation(LOG, 0, 9), bytes.fromhex(event["leafhash"]), None)
        return [*lines[:9], json.dumps(head).encode(), *lines[10:]]

    all_lines(export, without)
    remanifest(export)
    assert first_of(verdict(export, key)) == ("unexplained_erasure", 9)
