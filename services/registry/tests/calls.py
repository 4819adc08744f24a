"""RPC calls for tests."""

from __future__ import annotations

from typing import Any

import grpc.aio
import pytest

from libs.common.errors import MeshError
from libs.common.rpc.status import from_rpc_error

# The timeout of a call in seconds, generous for a busy machine. No test waits for it to pass.
PATIENCE = 60.0


async def refusal(call: Any) -> MeshError:
    """Return the error of a call; fail if the call succeeds."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata that carries a token."""
    return (("authorization", f"Bearer {token}"),)
