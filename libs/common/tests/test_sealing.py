"""What is sealed opens only with its key, at its place, unchanged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.sealing import Seal, SealError, new_key, read_seal

OLD, NEW = os.urandom(32), os.urandom(32)


@given(st.binary(max_size=500), st.text(max_size=50))
def test_what_was_sealed_opens_again_and_shows_nothing(content: bytes, place: str) -> None:
    sealed = Seal([OLD]).seal(content, place)
    assert Seal([OLD]).open(sealed, place) == content
    assert len(content) < 8 or content not in sealed


def test_the_same_content_is_never_sealed_alike() -> None:
    seal = Seal([OLD])
    assert seal.seal(b"same", "a") != seal.seal(b"same", "a")


def test_the_last_key_seals_and_every_key_opens() -> None:
    before = Seal([OLD]).seal(b"old", "a")
    rotated = Seal([OLD, NEW])
    assert rotated.open(before, "a") == b"old"
    assert Seal([NEW]).open(rotated.seal(b"new", "a"), "a") == b"new"


def test_without_its_key_or_at_another_place_it_does_not_open() -> None:
    sealed = Seal([OLD]).seal(b"content", "a")
    for seal, place in [(Seal([NEW]), "a"), (Seal([OLD]), "b")]:
        with pytest.raises(SealError):
            seal.open(sealed, place)


@given(st.integers(min_value=0), st.integers(min_value=1, max_value=255))
def test_any_changed_byte_is_found(at: int, flip: int) -> None:
    seal = Seal([OLD])
    sealed = bytearray(seal.seal(b"content", "a"))
    sealed[at % len(sealed)] ^= flip
    with pytest.raises(SealError):
        seal.open(bytes(sealed), "a")


@pytest.mark.parametrize("sealed", [b"", b"\x01", b"\x01abcd", b"plain text that was never sealed"])
def test_what_is_no_seal_does_not_open(sealed: bytes) -> None:
    with pytest.raises(SealError):
        Seal([OLD]).open(sealed, "a")


def test_a_folder_of_keys_is_read_in_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "1.key").write_bytes(new_key())
    before = read_seal(tmp_path).seal(b"x", "a")
    (tmp_path / "2.key").write_bytes(new_key() + b"\n")
    both = read_seal(tmp_path)
    assert both.open(before, "a") == b"x"
    (tmp_path / "1.key").unlink()
    assert read_seal(tmp_path).open(both.seal(b"y", "a"), "a") == b"y"


@pytest.mark.parametrize(
    "content", [b"", b"short", b"!" * 44, new_key()[:-4]], ids=["nothing", "short", "no base64", "cut off"]
)
def test_a_file_that_is_no_key_is_named_and_not_shown(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.key").write_bytes(content)
    with pytest.raises(ValueError, match=r"bad\.key") as error:
        read_seal(tmp_path)
    assert not content or content.decode() not in str(error.value)


def test_an_empty_folder_and_no_keys_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no"):
        read_seal(tmp_path)
    with pytest.raises(ValueError, match="32"):
        Seal([])


def test_a_seal_does_not_show_its_keys() -> None:
    assert OLD.hex() not in repr(Seal([OLD]))
    assert str(OLD) not in repr(Seal([OLD]))
