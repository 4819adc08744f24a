"""The tables of approval after the newest migration."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Computed, Integer, LargeBinary, MetaData, Table, Text
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
    Column("call_digest", Text, nullable=False),
    # Bytes, so that the approver sees exactly what the executor sent.
    Column("redacted_arguments", LargeBinary, nullable=False),
    Column("preview", LargeBinary, nullable=False),
    Column("requester", JSONB, nullable=False),
    Column("tenant", Text, Computed("requester ->> 'tenant'", persisted=True)),
    Column("invocation", Text, nullable=False),
    Column("decision", Text, nullable=False),
    Column("policy_set_version", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("reason_required", Boolean, nullable=False),
    Column("risk", JSONB, nullable=False),
    Column("policies", ARRAY(Text), nullable=False),
    Column("escalation_chain", ARRAY(Text), nullable=False),
    Column("escalation_index", Integer, nullable=False),
    Column("asked_groups", ARRAY(Text), Computed("escalation_chain[1:escalation_index + 1]", persisted=True)),
    Column("escalate_times", ARRAY(_MOMENT), nullable=False),
    Column("quorum", Integer, nullable=False),
    Column("lifetime", INTERVAL),
    Column("verdicts", JSONB, nullable=False),
    Column("steps", JSONB, nullable=False),
    Column("override", JSONB(none_as_null=True)),
    Column("create_time", _MOMENT, nullable=False),
    Column("expire_time", _MOMENT, nullable=False),
    Column("next_time", _MOMENT),
    Column("resolve_time", _MOMENT),
    Column("approval_expire_time", _MOMENT),
    Column("redeem_time", _MOMENT),
    Column("redemption_id", Text, nullable=False),
    Column("redeem_invocation", Text, nullable=False),
    Column("update_time", _MOMENT, nullable=False),
)

ticket_links = Table(
    "ticket_links",
    metadata,
    Column("token_digest", LargeBinary, primary_key=True),
    Column("ticket_id", Text(collation="C"), nullable=False),
    Column("approver_group", Text, nullable=False),
    Column("used_by", ARRAY(Text), nullable=False),
    Column("expire_time", _MOMENT, nullable=False),
)

notifications = Table(
    "notifications",
    metadata,
    Column("ticket_id", Text(collation="C"), primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("channel", Text, primary_key=True),
    Column("approver_group", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due_time", _MOMENT),
    Column("sent_time", _MOMENT),
    Column("create_time", _MOMENT, nullable=False),
)
