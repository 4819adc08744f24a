"""The tables of the executor."""

from __future__ import annotations

from sqlalchemy import Column, DateTime, LargeBinary, MetaData, Table, Text

metadata = MetaData()

# One row per idempotency key in its scope: who holds it, until when, and how it ended.
claims = Table(
    "claims",
    metadata,
    Column("tool", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    Column("session", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("arguments_digest", Text, nullable=False),
    Column("invocation_id", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("result", LargeBinary),
    Column("error", LargeBinary),
    Column("lease_until", DateTime(timezone=True), nullable=False),
    Column("create_time", DateTime(timezone=True), nullable=False),
    Column("expire_time", DateTime(timezone=True), nullable=False),
)
