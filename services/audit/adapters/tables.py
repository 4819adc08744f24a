"""The tables of the log, as the reader sees them; migrations/ makes them."""

from __future__ import annotations

from sqlalchemy import ARRAY, BigInteger, Column, DateTime, LargeBinary, MetaData, Table, Text

METADATA = MetaData()

records = Table(
    "records",
    METADATA,
    Column("sequence", BigInteger, primary_key=True),
    Column("record_id", Text, nullable=False, unique=True),
    Column("canonical", LargeBinary, nullable=False),
    Column("leaf_hash", LargeBinary, nullable=False),
    Column("log_time", DateTime(timezone=True), nullable=False),
    Column("event_time", DateTime(timezone=True), nullable=False),
    Column("subject", Text),
    Column("tool_version", Text),
    Column("trace_id", Text),
    Column("invocation_id", Text),
    Column("authz_outcome", Text),
    Column("status", Text),
    Column("ticket", Text),
)

tree_head = Table(
    "tree_head",
    METADATA,
    Column("log_id", Text, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("hashes", ARRAY(LargeBinary), nullable=False),
)
