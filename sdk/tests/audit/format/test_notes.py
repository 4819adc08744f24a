"""Checkpoints and keys as others write them."""

from __future__ import annotations

import base64
import hashlib

import metamorphic_log
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from toolmesh_sdk.audit.format.notes import Note, Trust, UnreadableNoteError, VerifierKey

from sdk.tests.audit_sample import LOG, Key

ROOT = hashlib.sha256(b"root").digest()


@pytest.fixture
def key() -> Key:
    return Key()


def test_a_note_that_the_key_signed_is_trusted(key: Key) -> None:
    note = Note.parse(key.note(3, 7, ROOT))
    assert (note.origin, note.log, note.shard, note.size, note.root) == (f"{LOG}/3", LOG, 3, 7, ROOT)
    assert note.trust(key.verifier) is Trust.SIGNED
    assert metamorphic_log.verify_signed_note(key.note(3, 7, ROOT), [key.text]) == 1


def test_a_key_that_signs_under_the_name_of_a_shard_speaks_for_all_of_them() -> None:
    key = Key(name=f"{LOG}/0")
    assert Note.parse(key.note(0, 7, ROOT)).trust(key.verifier) is Trust.SIGNED
    signed_as_own_origin = Key(private=key.private, name=f"{LOG}/5")
    assert Note.parse(signed_as_own_origin.note(5, 7, ROOT)).trust(key.verifier) is Trust.SIGNED


def test_a_note_of_another_key_or_another_log_is_not_trusted(key: Key) -> None:
    assert Note.parse(Key().note(0, 7, ROOT)).trust(key.verifier) is Trust.WRONG_KEY
    assert Note.parse(key.note(0, 7, ROOT, log="elsewhere/audit/1")).trust(key.verifier) is Trust.WRONG_KEY


@pytest.mark.parametrize("change", [("\n7\n", "\n8\n"), ("/0\n", "/1\n")])
def test_a_note_whose_text_was_changed_is_forged(key: Key, change: tuple[str, str]) -> None:
    assert Note.parse(key.note(0, 7, ROOT).replace(*change)).trust(key.verifier) is Trust.WRONG_SIGNATURE


def test_signatures_of_strangers_neither_help_nor_harm(key: Key) -> None:
    stranger = Key(name="witness.example/w").note(0, 7, ROOT).rpartition("\n\n")[2]
    assert Note.parse(key.note(0, 7, ROOT) + stranger).trust(key.verifier) is Trust.SIGNED
    alone = key.note(0, 7, ROOT).rpartition("\n\n")[0] + "\n\n" + stranger
    assert Note.parse(alone).trust(key.verifier) is Trust.WRONG_KEY


def test_extension_lines_are_signed_with_the_rest(key: Key) -> None:
    text = f"{LOG}/0\n7\n{base64.b64encode(ROOT).decode()}\nextension\n"
    mark = base64.b64encode(key.verifier.key_hash_for(LOG) + key.private.sign(text.encode())).decode()
    assert Note.parse(f"{text}\n\N{EM DASH} {LOG} {mark}\n").trust(key.verifier) is Trust.SIGNED


def test_a_witness_has_co_signed_or_not(key: Key) -> None:
    private = Ed25519PrivateKey.generate()
    witness = VerifierKey("witness.example/w", private.public_key().public_bytes_raw())
    note = key.note(0, 7, ROOT)
    text, moment = Note.parse(note).text, 1_800_000_000
    signed = private.sign(f"cosignature/v1\ntime {moment}\n{text}".encode())
    line = base64.b64encode(witness.key_hash_for(witness.name, 4) + moment.to_bytes(8, "big") + signed).decode()
    assert Note.parse(f"{note}\N{EM DASH} {witness.name} {line}\n").witnessed_by(witness)
    assert not Note.parse(note).witnessed_by(witness)
    later = base64.b64encode(witness.key_hash_for(witness.name, 4) + (moment + 1).to_bytes(8, "big") + signed).decode()
    assert not Note.parse(f"{note}\N{EM DASH} {witness.name} {later}\n").witnessed_by(witness)


@pytest.mark.parametrize(
    "note",
    [
        "",
        "a\n1\nnot base64\n\n\u2014 a AAAA\n",
        "a\n01\nAAAA\n\n\u2014 a AAAAAAAA\n",
        "a\n1\n" + "A" * 43 + "=\n\n- a AAAAAAAA\n",
    ],
)
def test_what_is_no_checkpoint_is_refused(note: str) -> None:
    with pytest.raises(UnreadableNoteError):
        Note.parse(note)


def test_a_note_that_is_cut_off_is_refused(key: Key) -> None:
    with pytest.raises(UnreadableNoteError):
        Note.parse(key.note(0, 7, ROOT).rstrip("\n"))


def test_a_verifier_key_is_read_as_written_and_checked_against_its_hash(key: Key) -> None:
    assert key.verifier.public_key == key.public
    assert key.verifier.key_id == "+".join(key.text.split("+")[:2])
    name, rest = key.text.split("+", 1)
    flipped = ("0" if rest[0] != "0" else "1") + rest[1:]
    for bad in ("", "only-a-name", f"{name}+{flipped}", f"other+{rest}", key.text[:-4]):
        with pytest.raises(UnreadableNoteError):
            VerifierKey.parse(bad)
