"""Whatever is sent to a real executor, over real mutual TLS, is answered or refused by name: never with an untyped
error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import dump
from libs.common.rpc.client import channel_to
from libs.common.rpc.status import DETAILS_KEY, from_rpc_error
from libs.common.runtime.settings import Address
from services.executor.builtin.arithmetic import Arithmetic
from services.executor.builtin.clock_now import ClockNow
from services.executor.builtin.echo import Echo
from services.executor.tests.builtin.test_builtin_schemas import schema_of
from services.executor.tests.generated import ANY_JSON, keeping
from services.executor.tests.peers import credentials
from services.executor.tests.test_wiring import executor  # noqa: F401  (the whole process, put together)

NAMES = ["core.echo", "core.clock_now", "core.arithmetic"]
SCHEMAS = [schema_of(tool) for tool in (Echo, ClockNow, Arithmetic)]  # type: ignore[arg-type]
# Beyond the schema: undeclared properties, and values of every type in the declared places.
WILD = st.dictionaries(
    st.sampled_from(["text", "value", "timezone", "expression"]) | st.text(max_size=9), ANY_JSON, max_size=4
)
# The whole stack stands still between two examples, so how long one takes says nothing.
thorough = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


async def typed(call: Any) -> MeshError | None:
    """Make a call; return how it was refused, which must be by an envelope and a reason that says something."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        failure = error
    else:
        return None
    found = from_rpc_error(failure)
    assert DETAILS_KEY in [key for key, _ in failure.trailing_metadata() or ()], failure.code()
    assert found.reason is not Reason.INTERNAL
    return found


def as_json(value: Any) -> bytes:
    try:
        return dump(value)
    except MeshError:
        return repr(value).encode("utf-8", "surrogatepass")


@thorough
@given(st.data())
async def test_arguments_that_keep_a_schema(executor: Any, data: Any) -> None:  # noqa: F811
    which = data.draw(st.integers(0, len(NAMES) - 1))
    error = await typed(executor.invoke(NAMES[which], as_json(data.draw(keeping(SCHEMAS[which])))))
    assert error is None or error.reason in (Reason.ARGUMENTS_INVALID, Reason.EXECUTION_FAILED)


@thorough
@given(st.sampled_from(NAMES), WILD)
async def test_undeclared_arguments(executor: Any, name: str, arguments: dict[str, Any]) -> None:  # noqa: F811
    error = await typed(executor.invoke(name, as_json(arguments)))
    # Whatever it was: the call is known by its id, and so is its evidence.
    assert error is None or error.invocation_id


@thorough
@given(
    st.sampled_from(NAMES),
    st.binary(max_size=300) | st.from_regex(rb'[\[\]{}",:0-9eE.+\-tfn\\u ]{0,60}', fullmatch=True),
)
async def test_arguments_that_are_any_bytes(executor: Any, name: str, payload: bytes) -> None:  # noqa: F811
    await typed(executor.invoke(name, payload))


@thorough
@given(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=330),
    st.text(st.characters(codec="utf-8"), max_size=130),
    st.text(st.characters(codec="utf-8"), max_size=260),
)
async def test_any_names_versions_and_keys(executor: Any, name: str, version: str, key: str) -> None:  # noqa: F811
    assert await typed(executor.invoke(name, version=version, idempotency_key=key)) is not None


@thorough
@given(st.binary(max_size=200))
async def test_messages_that_are_none(executor: Any, pki: Any, signer: Any, message: bytes) -> None:  # noqa: F811
    address = Address("127.0.0.1", executor.application.server.port)
    metadata = (("authorization", f"Bearer {signer.mint()}"),)
    async with channel_to("executor", address, credentials(pki, "gateway")) as channel:
        send: Callable[..., Any] = channel.unary_unary(
            "/toolmesh.executor.v1.ExecutorService/Invoke", request_serializer=bytes, response_deserializer=bytes
        )
        await typed(send(message, metadata=metadata, timeout=5.0))
