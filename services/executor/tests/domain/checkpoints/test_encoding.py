"""The stored form of checkpoints: sizes, differences, and every kind of damage."""

from __future__ import annotations

import random

import msgspec
import pytest

from libs.common.json.jsonio import dump
from services.executor.domain.checkpoints import encoding
from services.executor.domain.checkpoints.encoding import (
    CheckpointDamagedError,
    ParentState,
    StoredForm,
    encode,
    normalize,
    pack,
    state_of,
    unpack,
)

HEAD = StoredForm(1, "0198", "sha256:tool", "macro", 1, 0, 0.0, "", "", "none", b"")


def states() -> list[bytes]:
    """The states of a tool that copies records and notes each: they grow by one record at a time."""
    chance = random.Random(1)
    rows = [
        {"id": f"order-{n:05}", "status": chance.choice(["paid", "open"]), "amount": chance.randrange(10**6)}
        for n in range(200)
    ]
    return [dump({"next": n, "of": 200, "done": rows[:n]}) for n in range(1, 201)]


def test_a_chain_of_checkpoints_is_restored_and_takes_little_room() -> None:
    parent: ParentState | None = None
    stored: dict[int, bytes] = {}
    raw = 0
    for number, state in enumerate(states(), start=1):
        form = encode(msgspec.structs.replace(HEAD, number=number), state, parent)
        stored[number] = pack(form)
        raw += len(state)
        since = parent.since_full + 1 if parent is not None and form.parent else 0
        parent = ParentState(number, state, since)
    room = sum(map(len, stored.values()))
    assert room <= 0.4 * raw
    assert sum(not unpack(each).parent for each in stored.values()) >= 20
    for number in (1, 2, 10, 57, 199, 200):
        chain = [unpack(stored[number])]
        while chain[-1].parent:
            chain.append(unpack(stored[chain[-1].parent]))
        assert len(chain) <= encoding.FULL_EVERY
        restored: bytes | None = None
        for form in reversed(chain):
            restored = state_of(form, restored)
        assert restored == states()[number - 1]


@pytest.mark.parametrize(
    "state",
    [
        b"{}",
        b"7",
        b'{"x": 1.0, "y": [1e+20, 1844674407370955161, null]}',
        b'{"x": 100000000000000000000}',
        b'{"n": 123456789012345678901234567890}',
    ],
)
def test_a_state_is_restored_with_every_digit(state: bytes) -> None:
    first = encode(HEAD, normalize(state), None)
    assert state_of(unpack(pack(first)), None).replace(b" ", b"") == state.replace(b" ", b"")
    other = normalize(b'{"x": 2}')
    second = encode(HEAD, other, ParentState(1, normalize(state), 0))
    assert state_of(unpack(pack(second)), normalize(state)) == other


def test_large_states_are_compressed_and_full() -> None:
    small, large = b'"' + b"a" * 100 + b'"', b'"' + b"a" * (2 << 20) + b'"'
    assert encode(HEAD, small, None).compression == "none"
    form = encode(HEAD, large, ParentState(1, large, 0))
    assert (form.parent, form.compression in ("gzip", "zstd"), len(form.content) < 10_000) == (0, True, True)
    assert state_of(form, None) == large


def test_damage_of_every_kind_is_found() -> None:
    old, new = states()[100], states()[101]
    form = encode(HEAD, new, ParentState(1, old, 0))
    full = encode(HEAD, new, None)
    assert form.parent == 1
    replace = msgspec.structs.replace
    for damaged, parent in [
        (replace(full, content=full.content[:-20]), None),
        (replace(full, content=full.content[:50] + b"\0\0\0" + full.content[53:]), None),
        (replace(full, content=b""), None),
        (replace(full, digest=encoding.digest_of(b"other")), None),
        (replace(full, compression="lzma"), None),
        (replace(form, content=form.content[:-3]), old),
        (replace(form, content=b"[9]"), old),
        (form, None),
        (form, states()[99]),
        (form, b"not json"),
    ]:
        with pytest.raises(CheckpointDamagedError):
            state_of(damaged, parent)
    for stored in (b"", b"\xc1", pack(full)[:-1], pack(replace(full, version=2)), pack(full) + b"x", b"{}"):
        with pytest.raises(CheckpointDamagedError):
            unpack(stored)
