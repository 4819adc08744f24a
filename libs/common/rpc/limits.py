"""Limits of both ends of a call. Not in the server module, so that a client need not load it."""

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
