"""Credentials of Python tools, in every sandbox of this machine: which call reads them, and where they are not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from libs.common.errors import MeshError, Reason
from libs.common.secret_store.secret import Binding, Secret
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.factory import RunnerConfig, SandboxedRunners
from services.executor.adapters.sandbox.port import Sandbox
from services.executor.domain import errors
from services.executor.domain.tool import Tool
from services.executor.tests.memory_channel import MemoryChannel, on
from services.executor.tests.packing import confined, make_pack, python_tool, work
from services.executor.tests.running import Running, own_tmp
from services.executor.tests.sandboxes import sandbox

__all__ = ["own_tmp", "sandbox"]

VALUE = 'sk-live-"quoted"-0123456789abcdef'
CODE = """
import os, sys
from toolmesh_tool import ToolFailure

TOKEN = os.urandom(8).hex()

def reads(arguments, call):
    return {"length": len(call.secret("api_key")), "token": TOKEN}

def asks(arguments, call):
    return {"value": call.secret(arguments["name"])}

def looks_around(arguments, call):
    found = [repr(os.environ), " ".join(sys.argv)]
    found += [open(f"/proc/{name}/cmdline", "rb").read().decode() for name in os.listdir("/proc") if name.isdigit()]
    found += [open("/proc/self/environ", "rb").read().decode(errors="replace")]
    return {"found": call.secret("api_key") in "".join(found)}

def betrays(arguments, call):
    value = call.secret("api_key")
    where = arguments["where"]
    if where == "result":
        return {"text": f"it is {value}", value: [value]}
    if where == "json":
        import json
        return {"text": json.dumps({"key": value})}
    if where == "print":
        print("before", value, "after")
        print("x" * 595 + value)
        print(value, file=sys.stderr)
        call.log(value)
    if where == "flood":
        # The output ends amid the value.
        print("y" * (54 * 600 - 12) + value + "y" * 500)
    if where == "child":
        import subprocess
        subprocess.run([sys.executable, "-c", "print(input())"], input=value, text=True)
        os._exit(3)
    if where == "failure":
        raise ToolFailure(f"not accepted: {value}")
    if where == "raises":
        raise ValueError("z" * 1990 + value)
    if where == "dies":
        os.write(2, value.encode())
        os._exit(3)
    if where == "notes":
        call.report_effect(f"key/{value}", "create")
        call.undo({"key": value})
    if where == "reports":
        call.progress(percent=1.0, message=value)
        call.log(value)
        call.partial({"key": value})
        call.checkpoint({"key": value})
    return {}
"""


class Store:
    """Implements SecretStore with what a test puts into it."""

    def __init__(self) -> None:
        self.secrets: dict[tuple[str, str], Secret] = {}

    def put(self, value: str = VALUE, tenant: str = "", **binding: Any) -> None:
        """Set the secret `crm`."""
        bound = Binding(**{"hosts": ("api.example.com",), "namespaces": ("acme",), **binding})
        self.secrets[tenant, "crm"] = Secret("crm", value, bound, tenant)

    async def get(self, name: str, tenant: str) -> Secret:
        found = self.secrets.get((tenant, name)) or self.secrets.get(("", name))
        if found is None:
            raise errors.credential_not_found(name)
        return found

    async def reject(self, name: str, tenant: str) -> None:
        """Do nothing."""


@pytest.fixture
def store() -> Store:
    made = Store()
    made.put()
    return made


@pytest.fixture
async def running(sandbox: Sandbox, store: Store, tmp_path: Path, own_tmp: Path) -> AsyncIterator[Running]:
    make_pack(tmp_path / "packs", "keeper", {"tools.py": CODE})
    descriptor = os.open(tmp_path / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    tier = sandbox.name.partition("/")[0]
    config, log = RunnerConfig(packs=[tmp_path / "packs"]), Log("executor", descriptor=descriptor)
    runners = SandboxedRunners({tier: sandbox}, config, log, secrets=store)
    await runners.start()
    yield Running(runners, tmp_path / "log")
    await runners.stop()
    os.close(descriptor)


def keeper(function: str, *, secrets: Mapping[str, str] | None = None, **changes: Any) -> Tool:
    uses = tuple((secrets if secrets is not None else {"api_key": "crm"}).items())
    digest = f"sha256:{function}-{uses}"
    qualified = changes.pop("qualified", "acme.keep")
    return python_tool(f"keeper/tools:{function}", digest=digest, secrets=uses, qualified=qualified, **changes)


async def test_a_call_reads_what_its_tool_declares_and_nothing_else(running: Running) -> None:
    assert (await running.value(keeper("reads"), work()))["length"] == len(VALUE)
    for tool, name in ((keeper("asks"), "other"), (keeper("asks", secrets={}), "api_key")):
        error = await running.failure(tool, work(name=name))
        assert (error.reason, error.metadata["exception"]) == (Reason.EXECUTION_FAILED, "KeyError")


async def test_the_value_is_in_no_environment_and_no_command_line(running: Running) -> None:
    assert await running.value(keeper("looks_around"), work()) == {"found": False}


async def test_a_rotated_value_is_in_the_next_call_and_in_another_worker(running: Running, store: Store) -> None:
    first, again = [await running.value(keeper("reads"), work()) for _ in range(2)]
    store.put(VALUE + "-2")
    rotated = await running.value(keeper("reads"), work())
    assert first == again
    assert rotated["length"] == len(VALUE) + 2
    assert rotated["token"] != first["token"]


async def test_tenants_read_their_own(running: Running, store: Store) -> None:
    store.put("another-key", tenant="bolt")
    lengths = [(await running.value(keeper("reads"), work(tenant)))["length"] for tenant in ("acme", "bolt")]
    assert lengths == [len(VALUE), len("another-key")]


async def test_no_call_starts_without_the_right_to_the_secret(running: Running, store: Store) -> None:
    reaching = confined(hosts=("api.example.com", "evil.example"))
    for tool in (keeper("reads", qualified="evil.keep"), keeper("reads", confinement=reaching)):
        error = await running.failure(tool, work())
        assert (error.reason, error.row.code, error.metadata["effect"]) == (
            Reason.CREDENTIAL_NOT_FOUND, "E3602", "none",
        )  # fmt: skip
    assert (await running.value(keeper("reads"), work()))["length"] == len(VALUE)
    store.secrets.clear()
    begun: list[float] = []

    def begin() -> float:
        begun.append(20.0)
        return 20.0

    asked = msgspec.structs.replace(work(), on_begin=begin)
    assert (await running.failure(keeper("reads"), asked)).reason is Reason.CREDENTIAL_NOT_FOUND
    assert begun == []


@pytest.mark.parametrize("where", ["result", "json", "print", "flood", "child", "failure", "raises", "dies", "notes"])
async def test_what_a_tool_betrays_is_replaced(running: Running, where: str) -> None:
    asked = work(where=where)
    shown: list[str] = []
    try:
        result = await running(keeper("betrays"), asked)
        shown.append(repr((result.value, result.effects, result.undo)))
    except MeshError as error:
        shown.append(repr((error.message, error.metadata, error.violations)))
    shown += [line.text for line in asked.notes.lines]
    shown += [running.logged, repr(asked)]
    seen = "\n".join(shown)
    assert "[redacted]" in seen
    for part in (VALUE, VALUE[:10], VALUE[-10:], msgspec.json.encode(VALUE).decode()[1:-1]):
        assert part not in seen


async def test_what_a_job_reports_is_replaced(running: Running) -> None:
    channel = MemoryChannel()
    await running.value(keeper("betrays", progress_supported=True), on(channel, work(where="reports")))
    seen = repr(vars(channel))
    assert seen.count("[redacted]") >= 4
    assert VALUE[:10] not in seen


async def test_concurrent_calls_of_two_values_share_no_worker(running: Running, store: Store) -> None:
    store.put("another-key", tenant="bolt")
    asked = [work(tenant) for tenant in ("acme", "bolt") * 3]
    results = await asyncio.gather(*(running.value(keeper("reads"), each) for each in asked))
    by_token = {(result["token"], result["length"]) for result in results}
    assert len({token for token, _ in by_token}) == len(by_token)
