"""Writes and reads the records of an export as Parquet: common fields as columns, and the canonical bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolmesh_sdk.audit.format.events import RecordLocation

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

ROWS_PER_GROUP = 10_000
_TEXTS = (
    *(
        "record_id",
        "event_class",
        "writer",
        "trace_id",
        "invocation_id",
        "tool_version",
        "tool_digest",
        "mutation_class",
    ),
    *("authorization", "decision", "policy_set_version", "ticket", "status", "error_reason", "task_id"),
)
_NUMBERS = ("latency_us", "cost_micros", "attempt")
_CALLER = ("subject", "agent", "tenant")


class ParquetRecords:
    """Writes rows in groups, with bounded memory. Close it to finish the file."""

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq  # type: ignore[import-untyped]

        self._schema = _schema()
        self._writer: Any = pq.ParquetWriter(path, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []

    def add(self, location: RecordLocation, leaf: bytes, payload: bytes, form: Mapping[str, Any] | None) -> None:
        """Add one record."""
        self._rows.append(to_row(location, leaf, payload, form))
        if len(self._rows) == ROWS_PER_GROUP:
            self._flush()

    def close(self) -> None:
        """Write the remaining rows and finish the file."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        import pyarrow as pa  # type: ignore[import-untyped]

        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
            self._rows = []


def to_row(location: RecordLocation, leaf: bytes, payload: bytes, form: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the row of a record. It depends only on the record and its location."""
    record: Mapping[str, Any] = form or {}
    caller = record.get("caller")
    caller_fields = caller if isinstance(caller, dict) else {}
    return {
        "sequence": location.sequence,
        "shard": location.shard,
        "event_time": datetime.fromisoformat(record["event_time"]) if "event_time" in record else None,
        **{name: record.get(name) for name in (*_TEXTS, *_NUMBERS)},
        **{name: caller_fields.get(name) for name in _CALLER},
        "leaf_hash": leaf,
        "canonical": payload or None,
    }


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file. Raises ValueError if it is not a Parquet file of an export."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    try:
        file = pq.ParquetFile(path)
        if not file.schema_arrow.equals(_schema()):
            raise ValueError("the columns are not those of an export")
        for batch in file.iter_batches(batch_size=ROWS_PER_GROUP):
            yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"not a readable Parquet file: {error}") from None


def _schema() -> pa.Schema:
    import pyarrow as pa  # type: ignore[import-untyped]

    return pa.schema(
        [
            pa.field("sequence", pa.int64(), nullable=False),
            pa.field("shard", pa.int64(), nullable=False),
            pa.field("event_time", pa.timestamp("us", tz="UTC")),
            *(pa.field(name, pa.string()) for name in _TEXTS),
            *(pa.field(name, pa.int64()) for name in _NUMBERS),
            *(pa.field(name, pa.string()) for name in _CALLER),
            pa.field("leaf_hash", pa.binary(32), nullable=False),
            pa.field("canonical", pa.binary()),
        ]
    )
