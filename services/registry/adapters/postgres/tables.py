"""The tables of the registry as its queries use them. Migrations create them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, FetchedValue, Integer, LargeBinary, MetaData, Table, Text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TIMESTAMP

metadata = MetaData()
_MOMENT = TIMESTAMP(timezone=True)
# Names are compared by bytes on every machine, because pages are in this order.
_NAME = Text(collation="C")

# One row. Every writer holds its lock until the end of the transaction, so change numbers become visible in order and
# without gaps.
change_counter = Table(
    "change_counter",
    metadata,
    Column("single", Boolean, primary_key=True),
    Column("epoch", Text, nullable=False),
    Column("last", BigInteger, nullable=False),
)

namespaces = Table(
    "namespaces",
    metadata,
    Column("namespace", _NAME, primary_key=True),
    Column("provider", Text, nullable=False),
    Column("create_time", _MOMENT, nullable=False),
    # A subject, or the name of a peer that acted for itself.
    Column("owner", Text, nullable=False),
    Column("update_time", _MOMENT, nullable=False),
    Column("revision", BigInteger, nullable=False),
)

# Subjects that may publish in a namespace.
namespace_delegates = Table(
    "namespace_delegates",
    metadata,
    Column("namespace", _NAME, primary_key=True),
    Column("subject", Text, primary_key=True),
    Column("added_by", Text, nullable=False),
    Column("create_time", _MOMENT, nullable=False),
)

tools = Table(
    "tools",
    metadata,
    # `acme.send_email`
    Column("name", _NAME, primary_key=True),
    Column("namespace", _NAME, nullable=False),
    Column("provider", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("tags", ARRAY(Text), nullable=False),
    Column("latest_version", Text, nullable=False),
    Column("aliases", ARRAY(Text), nullable=False),
    Column("create_time", _MOMENT, nullable=False),
    Column("update_time", _MOMENT, nullable=False),
)

# Every name and alias with its tool.
tool_names = Table(
    "tool_names",
    metadata,
    Column("name", _NAME, primary_key=True),
    Column("tool", _NAME, nullable=False),
    # Generated columns, which similar names are compared with.
    Column("namespace", _NAME, FetchedValue()),
    Column("tool_id", _NAME, FetchedValue()),
    Column("skeleton", _NAME, FetchedValue()),
)

tool_versions = Table(
    "tool_versions",
    metadata,
    Column("tool", _NAME, primary_key=True),
    Column("version", Text, primary_key=True),
    # The version without build metadata; unique for each tool.
    Column("number", Text, nullable=False),
    Column("digest", Text, nullable=False),
    # The manifest is stored twice: as JSONB for queries, and as the bytes to return in the author's order.
    Column("manifest", JSONB, nullable=False),
    Column("document", LargeBinary, nullable=False),
    Column("size", Integer, nullable=False),
    Column("registered_by", Text, nullable=False),
    Column("registered_through", Text, nullable=False),
    Column("create_time", _MOMENT, nullable=False),
    Column("state", Text, nullable=False),
    Column("state_reason", Text, nullable=False),
    Column("deprecation", JSONB),
    Column("update_time", _MOMENT, nullable=False),
    # The number of the change that set the standing.
    Column("sequence", BigInteger, nullable=False),
    # The covered states, the next one last.
    Column("beneath", ARRAY(Text), nullable=False),
)

# What each executor can run, until its lease ends.
executors = Table(
    "executors",
    metadata,
    Column("instance", Text, primary_key=True),
    Column("process_id", Text, nullable=False),
    Column("runners", ARRAY(Text), nullable=False),
    Column("tiers", ARRAY(Text), nullable=False),
    Column("packs", ARRAY(Text), nullable=False),
    Column("unkept", ARRAY(Text), nullable=False),
    Column("circuits", JSONB, nullable=False),
    Column("expire_time", _MOMENT, nullable=False),
)

# The scan warnings of a version.
version_warnings = Table(
    "version_warnings",
    metadata,
    Column("tool", _NAME, primary_key=True),
    Column("version", Text, primary_key=True),
    Column("warnings", JSONB, nullable=False),
)

# Pairs of names that are alike: of two tools, or of two namespaces. Sequences become visible in order, because
# they are given under the writer lock.
alike_names = Table(
    "alike_names",
    metadata,
    Column("sequence", BigInteger, FetchedValue()),
    Column("newer", _NAME, primary_key=True),
    Column("older", _NAME, primary_key=True),
    Column("kind", Text, nullable=False),
)

# The standing after each change. A change without a state removed the version.
changes = Table(
    "changes",
    metadata,
    Column("sequence", BigInteger, primary_key=True),
    Column("tool", _NAME, nullable=False),
    Column("version", Text, nullable=False),
    Column("state", Text),
    Column("state_reason", Text),
    Column("deprecation", JSONB),
    Column("update_time", _MOMENT, nullable=False),
    Column("beneath", ARRAY(Text), nullable=False),
)

# The history of all versions. Rows are only inserted; the database refuses updates and deletes.
transitions = Table(
    "transitions",
    metadata,
    Column("sequence", BigInteger, primary_key=True),
    Column("tool", _NAME, nullable=False),
    Column("version", Text, nullable=False),
    Column("verb", Text, nullable=False),
    Column("from_state", Text, nullable=False),
    Column("to_state", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("through", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("time", _MOMENT, nullable=False),
)

# Servers outside the mesh. The revision grows with every change and guards against lost updates.
upstreams = Table(
    "upstreams",
    metadata,
    Column("upstream_id", _NAME, primary_key=True),
    Column("revision", BigInteger, nullable=False),
    Column("document", LargeBinary, nullable=False),
)
