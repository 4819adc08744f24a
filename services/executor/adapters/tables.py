"""The tables of the executor."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    func,
)

metadata = MetaData()

# One row per idempotency key in its scope: owner, lease and outcome.
claims = Table(
    "claims",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("tool", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    Column("session", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("arguments_digest", Text, nullable=False),
    Column("invocation_id", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("doubted", Text, nullable=False, server_default=""),
    Column("losses", Integer, nullable=False, server_default="0"),
    Column("volumes_only", Boolean, nullable=False, server_default="false"),
    Column("prepared", LargeBinary),
    Column("prepared_by", Text, nullable=False, server_default=""),
    Column("prepared_volume", Text, nullable=False, server_default=""),
    Column("record_id", Text, nullable=False, server_default=""),
    Column("record", LargeBinary),
    Column("key_id", Text, nullable=False, server_default=func.gen_random_uuid().cast(Text)),
    Column("result", LargeBinary),
    Column("error", LargeBinary),
    Column("lease_until", DateTime(timezone=True), nullable=False),
    Column("create_time", DateTime(timezone=True), nullable=False),
    Column("expire_time", DateTime(timezone=True), nullable=False),
)

# Audit records that wait for delivery to the log, in insertion order.
outbox = Table(
    "outbox",
    metadata,
    Column("sequence", BigInteger, Identity(always=True), primary_key=True),
    Column("record_id", Text, nullable=False, unique=True),
    Column("fragment", LargeBinary, nullable=False),
    Column("create_time", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("refuse_time", DateTime(timezone=True)),
)

# One row: the process that delivers the outbox, and its lease.
outbox_delivery = Table(
    "outbox_delivery",
    metadata,
    Column("singleton", Boolean, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("lease_until", DateTime(timezone=True), nullable=False),
)

# One row per result that is too large for a response: owner, token hash and expiry.
results = Table(
    "results",
    metadata,
    Column("result_id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("token_hash", LargeBinary, nullable=False),
    Column("digest", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("media_type", Text, nullable=False),
    Column("create_time", DateTime(timezone=True), nullable=False),
    Column("expire_time", DateTime(timezone=True), nullable=False),
)

# The encrypted pieces of a result.
result_pieces = Table(
    "result_pieces",
    metadata,
    Column("result_id", Text, ForeignKey("results.result_id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("content", LargeBinary, nullable=False),
)

# What one call of a tool printed, sealed, until it expires.
tool_logs = Table(
    "tool_logs",
    metadata,
    Column("sequence", BigInteger, Identity(always=True), primary_key=True),
    Column("invocation_id", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("lines", LargeBinary, nullable=False),
    Column("omitted", BigInteger, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("create_time", DateTime(timezone=True), nullable=False),
    Column("expire_time", DateTime(timezone=True), nullable=False),
)
