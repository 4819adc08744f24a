"""How tests call the registry."""

from __future__ import annotations

from typing import Any

import grpc.aio
import pytest

from libs.common.errors import MeshError
from libs.common.rpc.status import from_rpc_error

# Seconds that a call may take on a machine that is busy with many tests; nothing here waits for it to pass.
PATIENCE = 60.0


async def refusal(call: Any) -> MeshError:
    """Return the error that a call ends in; a call that succeeds fails the test."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata that carries a token."""
    return (("authorization", f"Bearer {token}"),)
