"""A log to export, made without the service: records, trees by the recursive definition, and a key to sign with."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from toolmesh_sdk.audit import Note, Report, VerifierKey, verify_export
from toolmesh_sdk.audit.export.writer import Evidence, ExportWriter, Header
from toolmesh_sdk.audit.format.manifest import FileDigest, Manifest, measure_file, read_manifest, write_index

LOG = "toolmesh.local/audit/6f1c0f86-4c6f-4e3d-9d9c-0a4f2b8f9a11"


def root_of(leaves: Sequence[bytes]) -> bytes:
    """Return the root over leaf hashes by the recursive definition of RFC 6962, section 2.1."""
    if len(leaves) < 2:
        return leaves[0] if leaves else hashlib.sha256(b"").digest()
    split = 1 << ((len(leaves) - 1).bit_length() - 1)
    return hashlib.sha256(b"\x01" + root_of(leaves[:split]) + root_of(leaves[split:])).digest()


def path_of(index: int, leaves: Sequence[bytes]) -> list[bytes]:
    """Return the audit path of section 2.1.1."""
    if len(leaves) < 2:
        return []
    split = 1 << ((len(leaves) - 1).bit_length() - 1)
    if index < split:
        return [*path_of(index, leaves[:split]), root_of(leaves[split:])]
    return [*path_of(index - split, leaves[split:]), root_of(leaves[:split])]


def consistency_of(size: int, leaves: Sequence[bytes], *, whole: bool = True) -> list[bytes]:
    """Return the consistency proof of section 2.1.2."""
    if size == len(leaves):
        return [] if whole else [root_of(leaves)]
    split = 1 << ((len(leaves) - 1).bit_length() - 1)
    if size <= split:
        return [*consistency_of(size, leaves[:split], whole=whole), root_of(leaves[split:])]
    return [*consistency_of(size - split, leaves[split:], whole=False), root_of(leaves[:split])]


def a_form(number: int, **changes: Any) -> dict[str, Any]:
    """Return a record's canonical form as values."""
    form = {
        "record_id": f"record-{number:08d}",
        "event_class": "invocation_succeeded",
        "event_time": f"2026-11-15T05:00:{number % 60:02d}.{number % 1000:06d}Z",
        "writer": "executor",
        "tool_version": "tools/core.echo/versions/1.0.0",
        "invocation_id": f"inv-{number}",
        "status": "success",
        "authorization": "allow",
        "cost_micros": 2**53 + number,
        "arguments_summary": {"text": "grüße \u20ac \U0001f600", "n": 9_007_199_254_740_993, "\ufb01x": number},
        "caller": {"subject": "did:web:x:alice", "scopes": ["tools:call"]},
    }
    return {**form, **changes}


def payload_of(form: dict[str, Any]) -> bytes:
    """Return the canonical bytes of a form without fractions."""
    return json.dumps(form, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def leaf_of(payload: bytes) -> bytes:
    """Return the leaf hash."""
    return hashlib.sha256(b"\x00" + payload).digest()


@dataclass
class Key:
    """Who signs for the log."""

    private: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    name: str = LOG

    @property
    def public(self) -> bytes:
        return self.private.public_key().public_bytes_raw()

    @property
    def text(self) -> str:
        key = base64.b64encode(b"\x01" + self.public).decode()
        return f"{self.name}+{self._hash().hex()}+{key}"

    @property
    def verifier(self) -> VerifierKey:
        return VerifierKey.parse(self.text)

    def note(self, shard: int, size: int, root: bytes, log: str = LOG) -> str:
        text = f"{log}/{shard}\n{size}\n{base64.b64encode(root).decode()}\n"
        signature = base64.b64encode(self._hash() + self.private.sign(text.encode())).decode()
        return f"{text}\n\N{EM DASH} {self.name} {signature}\n"

    def _hash(self) -> bytes:
        return hashlib.sha256(self.name.encode() + b"\n\x01" + self.public).digest()[:4]


@dataclass
class Shard:
    """A shard of the sample log."""

    number: int
    first: int
    payloads: list[bytes]
    erased: set[int] = field(default_factory=set)

    @property
    def leaves(self) -> list[bytes]:
        return [leaf_of(payload) for payload in self.payloads]

    @property
    def end(self) -> int:
        return self.first + len(self.payloads)


def a_log(*sizes: int) -> list[Shard]:
    """Return shards of these sizes, each opened by a record that names the one before."""
    shards: list[Shard] = []
    for number, size in enumerate(sizes):
        first = shards[-1].end if shards else 0
        payloads = [payload_of(a_form(sequence)) for sequence in range(first, first + size)]
        if shards:
            payloads[0] = payload_of(opening_of(shards[-1]))
        shards.append(Shard(number, first, payloads))
    return shards


def opening_of(before: Shard) -> dict[str, Any]:
    """Return the form of the record that opens the shard behind this one."""
    link = {
        "number": before.number,
        "first_sequence": before.first,
        "tree_size": len(before.payloads),
        "root_hash": root_of(before.leaves).hex(),
        "origin": f"{LOG}/{before.number}",
    }
    return a_form(before.end, event_class="shard_opened", writer="audit", previous_shard=link)


def erasure_of(number: int, shard: Shard, sequence: int) -> dict[str, Any]:
    """Return the form of the record that says that a payload was erased."""
    said = {"sequence": sequence, "leaf_hash": shard.leaves[sequence - shard.first].hex(), "reason": "asked for"}
    return a_form(number, event_class="payload_erased", writer="audit", erasure=said)


def write(
    folder: Path,
    key: Key,
    shard: Shard,
    *,
    first: int | None = None,
    end: int | None = None,
    size: int | None = None,
    evidence: Callable[[Evidence], None] = lambda evidence: None,
    **options: Any,
) -> Path:
    """Export a part of a shard, proved against its tree of `size`; return the folder."""
    first, end = shard.first if first is None else first, shard.end if end is None else end
    leaves = shard.leaves[: size or len(shard.payloads)]
    header = Header(
        shard=shard.number,
        shard_first_sequence=shard.first,
        first_sequence=first,
        end_sequence=end,
        checkpoint=key.note(shard.number, len(leaves), root_of(leaves)),
        verifier_key=key.text,
    )
    writer = ExportWriter(folder, header, **options)
    for sequence in range(first, end):
        index = sequence - shard.first
        writer.add(sequence, shard.leaves[index], b"" if sequence in shard.erased else shard.payloads[index])
    proof = Evidence(
        first=[node.hex() for node in path_of(first - shard.first, leaves)],
        last=[node.hex() for node in path_of(end - 1 - shard.first, leaves)],
    )
    if shard.number and first > shard.first:
        record = json.loads(shard.payloads[0])
        proof.opening = {"record": record, "path": [node.hex() for node in path_of(0, leaves)]}
    evidence(proof)
    writer.finish(proof)
    return folder


def write_all(folder: Path, key: Key, shards: Sequence[Shard], **options: Any) -> Path:
    """Export whole shards beside each other, with an index."""
    digests = {}
    for shard in shards:
        name = f"shard-{shard.number:05d}"
        write(folder / name, key, shard, **options)
        digests[name] = "sha256:" + hashlib.sha256((folder / name / "manifest.json").read_bytes()).hexdigest()
    write_index(folder, LOG, digests)
    return folder


def remanifest(folder: Path, **changes: Any) -> None:
    """Do what a careful forger does: bring the manifest in line with the files as they are now."""
    old = read_manifest(folder)
    files = {name: measure_file(folder / name) if (folder / name).exists() else FileDigest(0, "") for name in old.files}
    fields = {name: getattr(old, name) for name in Manifest.__dataclass_fields__}
    Manifest(**{**fields, "files": files, **changes}).write(folder)


def change_lines(
    folder: Path, change: Callable[[list[bytes]], list[bytes]], name: str = "records-00000.ndjson"
) -> None:
    """Rewrite a file of records."""
    lines = (folder / name).read_bytes().splitlines()
    (folder / name).write_bytes(b"".join(line + b"\n" for line in change(lines)))


def verdict(folder: Path, key: Key, *known: str, **options: Any) -> Report:
    """Verify."""
    return verify_export(folder, key.verifier, [Note.parse(note) for note in known], **options)


def first_of(report: Report) -> tuple[str, int | None]:
    """Return kind and place of the first bad place."""
    assert report.exit_code == 1, report.to_dict()
    assert report.first is not None
    return report.first.kind.value, report.first.sequence
