"""A tool that reads a secret of the mesh: `toolmesh secrets set signing_key --namespace samples` sets it."""

from __future__ import annotations

import hashlib
import hmac

from toolmesh_tool import Call, tool


@tool(
    namespace="samples",
    mutation_class="read_only",
    tier="process",
    secrets={"key": "secret://signing_key"},
)
def sign_text(text: str, call: Call) -> str:
    """Signs a text with HMAC-SHA256, as receivers of webhooks check it.

    Args:
        text: The text to sign.
    """
    signature = hmac.new(call.secret("key").encode(), text.encode(), hashlib.sha256)
    return f"sha256={signature.hexdigest()}"
