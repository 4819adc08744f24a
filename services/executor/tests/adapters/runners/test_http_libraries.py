"""Ordinary HTTP libraries inside every sandbox: they reach what the manifest names, and anything else is refused."""

from __future__ import annotations

import compileall
import importlib.metadata
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from libs.common.errors import Reason
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.factory import RunnerConfig, SandboxedRunners
from services.executor.adapters.sandbox.egress.proxy import EgressProxy
from services.executor.adapters.sandbox.port import Sandbox
from services.executor.tests.origins import Names, Origin
from services.executor.tests.packing import MIB, command_tool, confined, make_pack, python_tool, work
from services.executor.tests.running import Running, own_tmp
from services.executor.tests.sandboxes import sandbox

__all__ = ["own_tmp", "sandbox"]

CODE = """
def fetch_urllib(arguments, call):
    from urllib.request import urlopen
    with urlopen(arguments["url"], timeout=20) as answer:
        return {"text": answer.read().decode()}

def fetch_tunnel(arguments, call):
    import os
    from http.client import HTTPConnection
    from urllib.parse import urlsplit
    proxy, url = urlsplit(os.environ["HTTPS_PROXY"]), urlsplit(arguments["url"])
    connection = HTTPConnection(proxy.hostname, proxy.port, timeout=20)
    connection.set_tunnel(url.hostname, url.port)
    connection.request("GET", "/")
    return {"text": connection.getresponse().read().decode()}

def fetch_requests(arguments, call):
    import requests
    return {"text": requests.get(arguments["url"], timeout=20).text}

def fetch_httpx(arguments, call):
    import httpx
    return {"text": httpx.get(arguments["url"], timeout=20).text}

def fetch_httpx_async(arguments, call):
    import asyncio, httpx
    async def fetch():
        async with httpx.AsyncClient(timeout=20) as client:
            return (await client.get(arguments["url"])).text
    return {"text": asyncio.run(fetch())}

def fetch_aiohttp(arguments, call):
    import aiohttp, asyncio
    async def fetch():
        async with aiohttp.ClientSession(trust_env=True) as session, session.get(arguments["url"]) as answer:
            return await answer.text()
    return {"text": asyncio.run(fetch())}

START = __import__("time").monotonic()

def mishap(arguments, call):
    import os, signal
    if arguments["do"] == "kill":
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) not in (1, os.getpid()):
                os.kill(int(name), signal.SIGKILL)
        return {"text": "hello", "start": START}
    return {**fetch_urllib(arguments, call), "start": START}

def processes(arguments, call):
    import os
    return {"n": len([name for name in os.listdir("/proc") if name.isdigit()])}
"""
PROGRAM = """
import json, sys
from urllib.request import urlopen
json.dump({"text": urlopen(json.load(sys.stdin)["url"], timeout=20).read().decode()}, sys.stdout)
"""
LIBRARIES = ["urllib", "tunnel", "requests", "httpx", "httpx_async", "aiohttp"]
CLOSURE = [
    "requests", "urllib3", "idna", "certifi", "charset-normalizer", "httpx", "httpcore", "h11", "anyio", "sniffio",
    "typing-extensions", "aiohttp", "aiohappyeyeballs", "aiosignal", "attrs", "frozenlist", "multidict", "propcache",
    "yarl", "async-timeout",
]  # fmt: skip


def copy_distribution(name: str, target: Path) -> None:
    """Copy an installed distribution, as a pack brings it."""
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return
    for file in distribution.files or ():
        if ".." not in file.parts and "__pycache__" not in file.parts:
            place = target / file
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(distribution.locate_file(file)), place)


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packs")
    files = {"clients.py": CODE, "fetch.py": PROGRAM}
    pack = make_pack(folder, "fetching", files, lib="lib", programs=["fetch.py"])
    for name in CLOSURE:
        copy_distribution(name, pack / "lib")
    # Each call starts a process, which cannot keep what it compiles.
    compileall.compile_dir(pack / "lib", quiet=1)
    return folder


@pytest.fixture
async def running(sandbox: Sandbox, packs: Path, tmp_path: Path, own_tmp: Path) -> AsyncIterator[Running]:
    descriptor = os.open(tmp_path / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    proxy = EgressProxy([ip_network("127.0.0.1/32")], resolve=Names(["127.0.0.1"]))
    tier = sandbox.name.partition("/")[0]
    log = Log("executor", descriptor=descriptor)
    runners = SandboxedRunners({tier: sandbox}, RunnerConfig(packs=[packs]), log, lambda: proxy)
    await runners.start()
    yield Running(runners, tmp_path / "log")
    await runners.stop()
    os.close(descriptor)


@pytest.fixture
async def origin(stack: AsyncExitStack) -> Origin:
    return await stack.enter_async_context(Origin().listening())


def reaching(origin: Origin) -> Any:
    return confined(hosts=("api.example.com",), ports=(origin.port,), memory_bytes=512 * MIB)


async def test_ordinary_libraries_reach_allowed_hosts_and_are_refused_others(running: Running, origin: Origin) -> None:
    allowed = f"http://api.example.com:{origin.port}/"
    others = [f"http://evil.example:{origin.port}/", f"https://evil.example:{origin.port}/"]
    for library in LIBRARIES:
        tool = python_tool(f"fetching/clients:fetch_{library}", confinement=reaching(origin))
        assert await running.value(tool, work(url=allowed)) == {"text": "hello"}, library
        for url in others:
            error = await running.failure(tool, work(url=url))
            assert (error.reason, error.row.code) == (Reason.NETWORK_POLICY_VIOLATION, "E3406"), library
    program = command_tool("pack:fetching/fetch.py", confinement=reaching(origin))
    assert await running.value(program, work(url=allowed)) == {"text": "hello"}
    error = await running.failure(program, work(url=others[1]))
    assert error.reason is Reason.NETWORK_POLICY_VIOLATION


async def test_a_worker_whose_bridge_was_killed_serves_no_other_call(running: Running, origin: Origin) -> None:
    tool = python_tool("fetching/clients:mishap", confinement=reaching(origin))
    url = f"http://api.example.com:{origin.port}/"
    first = await running.value(tool, work(do="fetch", url=url))
    assert await running.value(tool, work(do="fetch", url=url)) == first
    assert await running.value(tool, work(do="kill", url=url)) == first
    assert (await running.value(tool, work(do="fetch", url=url)))["text"] == "hello"


async def test_only_a_tool_with_hosts_has_a_bridge(running: Running, origin: Origin) -> None:
    counts = [
        (await running.value(python_tool("fetching/clients:processes", digest=digest, confinement=reach), work()))["n"]
        for digest, reach in (("sha256:with", reaching(origin)), ("sha256:without", confined()))
    ]
    assert counts[0] == counts[1] + 1
