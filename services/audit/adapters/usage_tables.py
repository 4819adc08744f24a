"""Tables of usage for SQLAlchemy, and conversion of tallies; migrations/ creates the tables."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections import Counter
from typing import Any

from sqlalchemy import BigInteger, Column, Date, DateTime, Integer, LargeBinary, Numeric, Table, Text
from sqlalchemy.dialects.postgresql import JSONB

from services.audit.adapters.tables import METADATA
from services.audit.domain.usage.call import Outcome
from services.audit.domain.usage.cells import Cell
from services.audit.domain.usage.sketch import Sketch
from services.audit.domain.usage.tally import Tally

_OUTCOMES = [(outcome, outcome.value) for outcome in Outcome]
DIMENSION_COLUMNS = ("tool", "version", "tenant", "subject", "task")

usage_cells = Table(
    "usage_cells",
    METADATA,
    Column("day", Date, primary_key=True),
    Column("cell", LargeBinary, primary_key=True),
    Column("rollup", Text, nullable=False),
    *(Column(name, Text, nullable=False) for name in DIMENSION_COLUMNS),
    *(Column(outcome.value, BigInteger, nullable=False) for outcome in Outcome),
    Column("reasons", JSONB, nullable=False),
    Column("cost_micros", Numeric, nullable=False),
    Column("timed", BigInteger, nullable=False),
    Column("latency_sum_us", Numeric, nullable=False),
    Column("latency_max_us", BigInteger, nullable=False),
    Column("latency", LargeBinary, nullable=False),
    Column("first_time", DateTime(timezone=True), nullable=False),
    Column("last_time", DateTime(timezone=True), nullable=False),
)
usage_pages = Table(
    "usage_pages",
    METADATA,
    Column("rollup", Text, primary_key=True),
    Column("day", Date, primary_key=True),
    Column("cells", Integer, nullable=False),
)
usage_position = Table("usage_position", METADATA, Column("counted", BigInteger, nullable=False))

TALLY_COLUMNS = [
    *(usage_cells.c[outcome.value] for outcome in Outcome),
    *(usage_cells.c[name] for name in ("reasons", "cost_micros", "timed", "latency_sum_us", "latency_max_us")),
    *(usage_cells.c[name] for name in ("latency", "first_time", "last_time")),
]


def cell_digest(cell: Cell) -> bytes:
    """Return the key of a cell within its day. Dimension values contain no NUL, so the key is unambiguous."""
    key_text = "\0".join((cell.rollup, cell.day.isoformat(), *cell[2:]))
    return hashlib.blake2b(key_text.encode(), digest_size=16).digest()


def cell_row(cell: Cell, tally: Tally) -> dict[str, Any]:
    """Return the row of a cell as JSON values."""
    return {
        "day": cell.day,
        "cell": b64encode(cell_digest(cell)).decode(),
        "rollup": cell.rollup,
        **dict(zip(DIMENSION_COLUMNS, cell[2:], strict=True)),
        **{name: tally.outcomes[outcome] for outcome, name in _OUTCOMES},
        "reasons": {str(reason): count for reason, count in tally.reasons.items()},
        # Sums may exceed the range of JSON numbers.
        "cost_micros": str(tally.cost_micros),
        "timed": tally.timed,
        "latency_sum_us": str(tally.latency_sum_us),
        "latency_max_us": tally.latency_max_us,
        "latency": b64encode(tally.latency.encode()).decode(),
        "first_time": tally.first,
        "last_time": tally.last,
    }


def row_to_tally(row: Any) -> Tally:
    """Return the tally of a row."""
    return Tally(
        outcomes=Counter({outcome: count for outcome, name in _OUTCOMES if (count := getattr(row, name))}),
        reasons=Counter({int(reason): count for reason, count in row.reasons.items()}),
        cost_micros=int(row.cost_micros),
        latency=Sketch.decode(bytes(row.latency)),
        timed=row.timed,
        latency_sum_us=int(row.latency_sum_us),
        latency_max_us=row.latency_max_us,
        first=row.first_time,
        last=row.last_time,
    )
