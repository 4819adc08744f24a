"""Limits that both ends of a call keep. Apart from the server, so that a process which only calls need not load one."""

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
MAX_TOKEN_BYTES = 16_384
