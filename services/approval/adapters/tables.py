"""The table of tickets after the newest migration."""

from __future__ import annotations

from sqlalchemy import Column, Computed, Integer, LargeBinary, MetaData, Table, Text
from sqlalchemy.dialects.postgresql import ARRAY, INTERVAL, JSONB, TIMESTAMP

metadata = MetaData()
_MOMENT = TIMESTAMP(timezone=True)

tickets = Table(
    "tickets",
    metadata,
    # Collation C sorts ids by bytes on every machine; pages rely on this order.
    Column("ticket_id", Text(collation="C"), primary_key=True),
    Column("request_id", Text, nullable=False, unique=True),
    Column("state", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("tool_version", Text, nullable=False),
    Column("tool_digest", Text, nullable=False),
    Column("arguments_digest", Text, nullable=False),
    # Bytes, so that the approver sees exactly what the executor sent.
    Column("redacted_arguments", LargeBinary, nullable=False),
    Column("preview", LargeBinary, nullable=False),
    Column("requester", JSONB, nullable=False),
    Column("tenant", Text, Computed("requester ->> 'tenant'", persisted=True)),
    Column("invocation", Text, nullable=False),
    Column("decision", Text, nullable=False),
    Column("policy_set_version", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("escalation_chain", ARRAY(Text), nullable=False),
    Column("escalation_index", Integer, nullable=False),
    Column("quorum", Integer, nullable=False),
    Column("lifetime", INTERVAL, nullable=False),
    Column("verdicts", JSONB, nullable=False),
    Column("create_time", _MOMENT, nullable=False),
    Column("expire_time", _MOMENT, nullable=False),
    Column("resolve_time", _MOMENT),
    Column("redeem_time", _MOMENT),
)
