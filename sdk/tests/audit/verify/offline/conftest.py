"""An export of a log of 20 records, and the key of that log."""

from __future__ import annotations

from pathlib import Path

import pytest

from sdk.tests.audit_sample import (
    Key,
    Shard,
    a_log,
    write,
)


@pytest.fixture
def key() -> Key:
    return Key()


@pytest.fixture
def shard() -> Shard:
    return a_log(20)[0]


@pytest.fixture
def export(tmp_path: Path, key: Key, shard: Shard) -> Path:
    return write(tmp_path / "export", key, shard, per_file=8)
