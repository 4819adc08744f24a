"""The tables of trust: facts, stages, revocations and scores."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Double, SmallInteger, Table, Text
from sqlalchemy.dialects.postgresql import JSONB, TIMESTAMP

from services.registry.adapters.postgres.tables import metadata

_MOMENT = TIMESTAMP(timezone=True)
_NAME = Text(collation="C")

ratings = Table(
    "ratings",
    metadata,
    Column("tool", _NAME, primary_key=True),
    Column("version", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    Column("stars", SmallInteger, nullable=False),
    Column("comment", Text, nullable=False),
    Column("update_time", _MOMENT, nullable=False),
)

# Rows of these two tables are only inserted; the database refuses updates and deletes.
security_audits = Table(
    "security_audits",
    metadata,
    Column("fact_id", Text, primary_key=True),
    Column("tool", _NAME, nullable=False),
    Column("version", Text, nullable=False),
    Column("level", Text, nullable=False),
    Column("passed", Boolean, nullable=False),
    Column("auditor", Text, nullable=False),
    Column("report_url", Text, nullable=False),
    Column("summary", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("time", _MOMENT, nullable=False),
)
verifications = Table(
    "verifications",
    metadata,
    Column("fact_id", Text, primary_key=True),
    Column("tool", _NAME, nullable=False),
    Column("version", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("passed", Boolean, nullable=False),
    Column("evidence_url", Text, nullable=False),
    Column("summary", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("time", _MOMENT, nullable=False),
)

# The stage of each tool; a tool without a row is submitted.
tool_stages = Table(
    "tool_stages",
    metadata,
    Column("tool", _NAME, primary_key=True),
    Column("stage", Text, nullable=False),
    Column("update_time", _MOMENT, nullable=False),
)
stage_changes = Table(
    "stage_changes",
    metadata,
    Column("change_id", BigInteger, primary_key=True),
    Column("tool", _NAME, nullable=False),
    Column("from_stage", Text, nullable=False),
    Column("to_stage", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("time", _MOMENT, nullable=False),
)

# The revoked tools.
revocations = Table(
    "revocations",
    metadata,
    Column("tool", _NAME, primary_key=True),
    Column("reason", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("time", _MOMENT, nullable=False),
    # The first change of the revocation. Versions that were quarantined before it stay there when it is lifted.
    Column("sequence", BigInteger, nullable=False, server_default="0"),
)

# Computed by the sweeping replica; every replica keeps a copy in memory.
trust_scores = Table(
    "trust_scores",
    metadata,
    Column("tool", _NAME, primary_key=True),
    Column("namespace", _NAME, nullable=False),
    Column("score", Double, nullable=False),
    # The score without the provider signal, so that reputations do not feed each other.
    Column("own", Double, nullable=False),
    Column("components", JSONB, nullable=False),
    Column("compute_time", _MOMENT, nullable=False),
)
