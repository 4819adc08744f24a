"""Version 1 of the format of stored checkpoints. Pure.

A checkpoint is a MessagePack array: version, invocation, digest of the tool, kind, number, parent, time, label, digest
of the state, whether it is a difference to the parent, compression, and the content. Content over 10 KB is
compressed. Every tenth checkpoint is full, and so is each whose difference would save little.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import sys
import zlib
from typing import Any

import msgspec

from libs.common.errors import MeshError
from libs.common.json.jsonio import dump, parse
from services.executor.domain.checkpoints import json_delta
from services.executor.domain.checkpoints.checkpoint import Checkpoint

VERSION = 1
FULL_EVERY = 10
COMPRESSED_BYTES = 10 * 1024
# Larger states are always full: a difference is computed in Python.
MAX_DELTA_STATE = 1 << 20
_MAX_CONTENT = 256 << 20
# An integer past 64 bits would become a double.
_MAY_BE_ROUNDED = re.compile(rb"[0-9]{19}")
_COMPRESSION = "zstd" if sys.version_info >= (3, 14) else "gzip"


class CheckpointDamagedError(Exception):
    """A stored checkpoint cannot be read, or its state is not the one that was stored."""


class StoredForm(msgspec.Struct, frozen=True, array_like=True):
    """The fields of a stored checkpoint, in order."""

    version: int
    invocation_id: str
    tool_digest: str
    kind: str
    number: int
    parent: int
    """The checkpoint that it is a difference to; 0 for a full one."""
    time: float
    """When it was made, in seconds since the epoch."""
    label: str
    digest: str
    compression: str
    """`none`, `gzip` or `zstd`."""
    content: bytes


class ParentState(msgspec.Struct, frozen=True):
    """The checkpoint before a new one."""

    number: int
    state: bytes
    since_full: int
    """How many checkpoints ago the last full one was made."""


_DECODER = msgspec.msgpack.Decoder(StoredForm)


def normalize(state: bytes) -> bytes:
    """Return the state in the form that differences restore: compact JSON. Other text is left as it is."""
    if len(state) > MAX_DELTA_STATE or _MAY_BE_ROUNDED.search(state):
        return state
    try:
        return dump(parse(state))
    except MeshError:
        # A fraction that a double does not hold, for example. It is stored exactly as the tool wrote it.
        return state


def encode(form: StoredForm, state: bytes, parent: ParentState | None) -> StoredForm:
    """Return the form with its content: the state, or its difference to the parent."""
    content, number = state, 0
    if parent is not None and parent.since_full + 1 < FULL_EVERY:
        delta = _delta(parent.state, state)
        if delta is not None and len(delta) <= len(state) // 2:
            content, number = delta, parent.number
    compression = _COMPRESSION if len(content) > COMPRESSED_BYTES else "none"
    return msgspec.structs.replace(
        form,
        parent=number,
        digest=digest_of(state),
        compression=compression,
        content=_compress(content) if compression != "none" else content,
    )


def encode_checkpoint(checkpoint: Checkpoint, state: bytes, parent: ParentState | None) -> tuple[Checkpoint, bytes]:
    """Return a new checkpoint with its sizes, digest and parent, and the bytes that are stored."""
    head = StoredForm(
        version=VERSION,
        invocation_id=checkpoint.invocation_id,
        tool_digest=checkpoint.tool_digest,
        kind=str(checkpoint.kind),
        number=checkpoint.number,
        parent=0,
        time=checkpoint.create_time.timestamp(),
        label=checkpoint.label,
        digest="",
        compression="none",
        content=b"",
    )
    form = encode(head, state, parent)
    content = pack(form)
    sizes = {"stored_bytes": len(content), "digest": form.digest, "parent_number": form.parent}
    return msgspec.structs.replace(checkpoint, **sizes), content


def pack(form: StoredForm) -> bytes:
    """Return the bytes that are stored."""
    return msgspec.msgpack.encode(form)


def unpack(stored: bytes) -> StoredForm:
    """Return the fields of a stored checkpoint. Raises CheckpointDamagedError, also for another version."""
    try:
        form = _DECODER.decode(stored)
    except msgspec.MsgspecError:
        raise CheckpointDamagedError from None
    if form.version != VERSION:
        raise CheckpointDamagedError
    return form


def state_of(form: StoredForm, parent_state: bytes | None) -> bytes:
    """Return the state of a checkpoint, given that of its parent. Raises CheckpointDamagedError."""
    content = _decompress(form)
    if form.parent:
        if parent_state is None:
            raise CheckpointDamagedError
        try:
            content = dump(json_delta.apply(parse(parent_state), _parse(content)))
        except (json_delta.DeltaError, MeshError):
            raise CheckpointDamagedError from None
    if digest_of(content) != form.digest:
        raise CheckpointDamagedError
    return content


def digest_of(state: bytes) -> str:
    """Return the digest of a state."""
    return "sha256:" + hashlib.sha256(state).hexdigest()


def _delta(old: bytes, new: bytes) -> bytes | None:
    """Return the difference, if it restores exactly the new bytes."""
    if max(len(old), len(new)) > MAX_DELTA_STATE:
        return None
    try:
        value = parse(old)
        delta = json_delta.difference(value, parse(new))
        return dump(delta) if dump(json_delta.apply(value, delta)) == new else None
    except (MeshError, json_delta.DeltaError):
        return None


def _parse(content: bytes) -> Any:
    # A difference nests one level deeper than twice the depth of its state.
    return parse(content, max_depth=256)


def _compress(content: bytes) -> bytes:
    if sys.version_info >= (3, 14):
        from compression import zstd

        return bytes(zstd.compress(content))
    return gzip.compress(content, compresslevel=6, mtime=0)


def _decompress(form: StoredForm) -> bytes:
    try:
        if form.compression == "none":
            return form.content
        if form.compression == "gzip":
            unzip = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
            return unzip.decompress(form.content, _MAX_CONTENT)
        if form.compression == "zstd" and sys.version_info >= (3, 14):
            from compression import zstd

            return bytes(zstd.ZstdDecompressor().decompress(form.content, _MAX_CONTENT))
    except (zlib.error, OSError, EOFError, ValueError):
        pass
    except Exception as error:
        # The error of zstd has no base class of its own.
        if type(error).__name__ != "ZstdError":
            raise
    raise CheckpointDamagedError
