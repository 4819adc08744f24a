"""The tables of authz after the newest migration."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, DateTime, Identity, Integer, LargeBinary, MetaData, Table, Text, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

metadata = MetaData()

issued_tokens = Table(
    "issued_tokens",
    metadata,
    Column("jti", Text, primary_key=True),
    Column("subject", Text, nullable=False),
    Column("tier", Text, nullable=False),
    Column("issued_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    Column("kid", Text, nullable=False),
    Column("scopes", ARRAY(Text), nullable=False),
    Column("tools", JSONB, nullable=False),
    Column("agent", Text, nullable=False),
    Column("parent_jti", Text, nullable=False),
    Column("root_jti", Text, nullable=False),
    Column("tenant", Text, nullable=False),
)

feed_head = Table("feed_head", metadata, Column("sequence", BigInteger, nullable=False))

invalidations = Table(
    "invalidations",
    metadata,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("made_at", DateTime(timezone=True), nullable=False, server_default=text("clock_timestamp()")),
)

revocations = Table(
    "revocations",
    metadata,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("target_kind", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("revoked_by", Text, nullable=False),
    Column("revoked_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    Column("tenant", Text, nullable=False),
)

policy_sets = Table(
    "policy_sets",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("version", Text, nullable=False, unique=True),
    Column("policy_count", Integer, nullable=False),
    Column("comment", Text, nullable=False),
    Column("put_by", Text, nullable=False),
    Column("put_at", DateTime(timezone=True), nullable=False),
)

policy_documents = Table(
    "policy_documents",
    metadata,
    Column("set_number", BigInteger, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("text", Text, nullable=False),
)

activations = Table(
    "activations",
    metadata,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("set_number", BigInteger, nullable=False),
    Column("previous", BigInteger),
    Column("activated_by", Text, nullable=False),
    Column("activated_at", DateTime(timezone=True), nullable=False),
)

decisions = Table(
    "decisions",
    metadata,
    Column("sequence", BigInteger, Identity(always=True), primary_key=True),
    Column("decision_id", Text, nullable=False, unique=True),
    Column("question", JSONB, nullable=False),
    Column("answer", JSONB, nullable=False),
    Column("sealed", LargeBinary),
)

session_labels = Table(
    "session_labels",
    metadata,
    Column("sequence", BigInteger, Identity(always=True), primary_key=True),
    Column("place", Text, nullable=False),
    # The first token of the chain that added it; empty if that is not known.
    Column("root_token", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("added_at", DateTime(timezone=True), nullable=False, server_default=text("clock_timestamp()")),
    Column("decision", Text, nullable=False),
    Column("tool_version", Text, nullable=False),
    Column("invocation_id", Text, nullable=False),
    Column("cleared_at", DateTime(timezone=True)),
    Column("cleared_by", Text),
)
