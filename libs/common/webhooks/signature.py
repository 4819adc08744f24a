"""Signs webhooks in the form of Standard Webhooks. Pure.

The signature is the HMAC-SHA256 of the id, the timestamp and the body, joined by dots. Receivers compare it in constant
time, refuse old timestamps, and recognise a repeated delivery by its id.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from datetime import datetime

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
SECRET_PREFIX = "whsec_"  # noqa: S105  (a prefix, not a secret)
MIN_KEY_BYTES, MAX_KEY_BYTES = 24, 64


def signing_key(secret: str) -> bytes:
    """Return the key of a secret: `whsec_` and 24 to 64 bytes in base64. Raises ValueError, without the secret."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(SECRET_PREFIX) or not MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES:
        raise ValueError("a webhook secret is whsec_ and 24 to 64 bytes in base64") from None
    return key


def signed_headers(key: bytes, message_id: str, time: datetime, body: bytes) -> dict[str, str]:
    """Return the headers that identify, date and sign a message."""
    timestamp = str(int(time.timestamp()))
    content = f"{message_id}.{timestamp}.".encode() + body
    signature = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    return {ID: message_id, TIMESTAMP: timestamp, SIGNATURE: f"v1,{signature}"}
