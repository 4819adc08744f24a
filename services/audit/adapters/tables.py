"""Tables of the log for SQLAlchemy; migrations/ creates them."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Column,
    DateTime,
    Integer,
    LargeBinary,
    MetaData,
    ScalarSelect,
    SmallInteger,
    Table,
    Text,
    func,
    select,
)

METADATA = MetaData()

records = Table(
    "records",
    METADATA,
    Column("sequence", BigInteger, primary_key=True),
    # Partition key: statements that name the shard read only its partition.
    Column("shard", Integer, nullable=False),
    Column("record_id", Text, nullable=False, unique=True),
    # Null after erasure.
    Column("canonical", LargeBinary),
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
    Column("resource", Text),
)

tree_head = Table(
    "tree_head",
    METADATA,
    Column("log_id", Text, primary_key=True),
    Column("shard", Integer, nullable=False),
    Column("first_sequence", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("hashes", ARRAY(LargeBinary), nullable=False),
    Column("open_time", DateTime(timezone=True), nullable=False),
)

shards = Table(
    "shards",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("first_sequence", BigInteger, nullable=False),
    Column("open_time", DateTime(timezone=True), nullable=False),
    Column("size", BigInteger),
    Column("root_hash", LargeBinary),
    Column("close_time", DateTime(timezone=True)),
    Column("archive_time", DateTime(timezone=True)),
    Column("manifest_digest", Text),
    Column("drop_time", DateTime(timezone=True)),
)

subtrees = Table(
    "subtrees",
    METADATA,
    Column("shard", Integer, primary_key=True),
    Column("level", SmallInteger, primary_key=True),
    Column("place", BigInteger, primary_key=True),
    Column("hash", LargeBinary, nullable=False),
)

checkpoints = Table(
    "checkpoints",
    METADATA,
    Column("shard", Integer, primary_key=True),
    Column("size", BigInteger, primary_key=True),
    Column("root_hash", LargeBinary, nullable=False),
    Column("note", Text, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("sign_time", DateTime(timezone=True), nullable=False),
)

cosignatures = Table(
    "cosignatures",
    METADATA,
    Column("shard", Integer, primary_key=True),
    Column("size", BigInteger, primary_key=True),
    Column("key_id", Text, primary_key=True),
    Column("line", Text, nullable=False),
    Column("add_time", DateTime(timezone=True), nullable=False),
)

erasures = Table(
    "erasures",
    METADATA,
    Column("sequence", BigInteger, primary_key=True),
    Column("erased_by", BigInteger, nullable=False),
)

legal_holds = Table(
    "legal_holds",
    METADATA,
    Column("hold_id", Text, primary_key=True),
    Column("first_sequence", BigInteger, nullable=False),
    Column("end_sequence", BigInteger),
    Column("reason", Text, nullable=False),
    Column("placed_by", Text, nullable=False),
    Column("place_time", DateTime(timezone=True), nullable=False),
    Column("release_time", DateTime(timezone=True)),
)


def shard_at(sequence: int) -> ScalarSelect[int]:
    """Return a subquery for the shard of a sequence, so that a statement can name the partition."""
    return select(func.max(shards.c.number)).where(shards.c.first_sequence <= sequence).scalar_subquery()
