"""Second stage: whatever goes wrong below leaves as a gRPC status with an envelope, and as nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from libs.common.errors import MeshError, Reason
from libs.common.rpc.call import Call
from libs.common.rpc.status import from_rpc_error, status_code, trailing_details
from libs.common.telemetry.log import Log


class Failures:
    """Translates exceptions. An exception nobody foresaw becomes INTERNAL with a fixed text; its cause is only logged."""

    def __init__(self, log: Log) -> None:
        self._log = log

    @asynccontextmanager
    async def around(self, call: Call, context: Any) -> AsyncIterator[None]:
        try:
            yield
        except (asyncio.CancelledError, grpc.aio.AbortError, GeneratorExit):
            raise
        except MeshError as error:
            await _abort(context, error)
        except grpc.aio.AioRpcError as error:
            await _abort(context, from_rpc_error(error))
        except TimeoutError:
            await _abort(context, MeshError(Reason.DEADLINE_EXCEEDED))
        except Exception as error:
            self._log.error("unforeseen", method=call.method, cause=error)
            await _abort(context, MeshError(Reason.INTERNAL))


async def _abort(context: Any, error: MeshError) -> None:
    await context.abort(status_code(error), error.message, trailing_details(error))
