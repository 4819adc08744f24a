"""The tables of authz, as the newest migration leaves them."""

from __future__ import annotations

from sqlalchemy import Column, DateTime, MetaData, Table, Text
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
)
