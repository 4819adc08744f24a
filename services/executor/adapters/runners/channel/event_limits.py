"""The limits of what a running tool reports. They hold before anything is parsed or stored."""

from __future__ import annotations

PARTIAL_BYTES = 256 << 10
SCHEMA_BYTES = 64 << 10
STATE_BYTES = 4 << 20
"""The state of a checkpoint, unless a deployment sets another limit."""
MAX_TEXT = 2000
MAX_LABEL = 64
MAX_COUNT = 2**53

EVENTS_PER_SECOND = 200.0
EVENT_BURST = 200
"""A tool that reports faster waits: its pipe is read at this rate."""
LARGE_BYTES = 16 << 10
"""A payload of this size counts as one more event."""
