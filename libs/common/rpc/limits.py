"""Limits of both ends of a call. Not in the server module, so that a client need not load it."""

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
# A server reads so much of a request, to refuse one of more than MAX_MESSAGE_BYTES with an error envelope. gRPC itself
# refuses what is larger still, before any code of the mesh runs, with a bare RESOURCE_EXHAUSTED.
MAX_RECEIVED_BYTES = 2 * MAX_MESSAGE_BYTES
