"""IBM ContextForge over PostgreSQL and a Redis of its own, with the echo registered as a tool that it governs.

As its tuning guide says: PostgreSQL and Redis instead of SQLite, gunicorn with uvicorn workers, errors only in the
log, no admin pages, all caches
on; its limit of calls a minute is lifted, and tokens are required. Its audit trail is on, since a call without
evidence is not what we compare.

For every call it makes an HTTP client, which by default reads all certificates of the machine: most of a call's time.
Where a folder of
certificates is named instead of a file, they are read when one is needed, and it answers several times as many calls;
so it gets that,
though its documents do not say so.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psycopg

from bench.environment.machine import cpu_seconds, family
from bench.load.generator import Target
from tests.harness.stores import free_port, run_valkey, wait_until

ADMIN = "admin@example.com"
# One for each core, like the processes that we are measured with.
WORKERS = len(os.sched_getaffinity(0))
SETTINGS = {
    "CACHE_TYPE": "redis",
    "LOG_LEVEL": "ERROR",
    "ENVIRONMENT": "production",
    "AUTH_REQUIRED": "true",
    "AUDIT_TRAIL_ENABLED": "true",
    "MCPGATEWAY_UI_ENABLED": "false",
    "MCPGATEWAY_ADMIN_API_ENABLED": "false",
    "RATE_LIMITING_ENABLED": "false",
    "TOOL_RATE_LIMIT": "100000000",
    "COMPRESSION_ENABLED": "false",
    "DB_POOL_SIZE": "20",
    "DB_MAX_OVERFLOW": "10",
    # The echo is on this machine, which it would otherwise refuse to call.
    "SSRF_ALLOW_LOCALHOST": "true",
    "SSRF_ALLOW_PRIVATE_NETWORKS": "true",
}


@dataclass(frozen=True)
class Gateway:
    """A running ContextForge with the echo behind it."""

    port: int
    pid: int
    token: str

    def target(self) -> Target:
        """Return its MCP door, stateless, with a token."""
        headers = {
            "authorization": f"Bearer {self.token}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2025-06-18",
        }
        return Target(f"http://127.0.0.1:{self.port}", "/mcp", kind="json", headers=headers)


@contextmanager
def running(place: Path, folder: Path, database: str, echo: str) -> Iterator[Gateway]:
    """Run it from its environment, over a database of its own in this PostgreSQL, with the echo at this address as
    its tool."""
    folder.mkdir()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create database contextforge")
    with run_valkey(folder) as redis:
        port = free_port()
        environment = {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"}
        environment |= {**SETTINGS, **_secrets(), "SSL_CERT_DIR": str(folder), "REDIS_URL": redis}
        environment |= {"HOST": "127.0.0.1", "PORT": str(port)}
        address = database.replace("postgresql://", "postgresql+psycopg://", 1)
        environment["DATABASE_URL"] = address.rpartition("/")[0] + "/contextforge"
        with _served(place, folder, environment, port) as pid:
            token = _token(place, folder, environment)
            _register(port, token, echo)
            yield Gateway(port, pid, token)


def _secrets() -> dict[str, str]:
    password = {"PLATFORM_ADMIN_PASSWORD", "DEFAULT_USER_PASSWORD", "BASIC_AUTH_PASSWORD"}
    made = {name: f"Aa1!{secrets.token_urlsafe(24)}" for name in password}
    keys = {name: secrets.token_urlsafe(48) for name in ("JWT_SECRET_KEY", "AUTH_ENCRYPTION_SECRET")}
    return {**made, **keys, "PLATFORM_ADMIN_EMAIL": ADMIN}


@contextmanager
def _served(place: Path, folder: Path, environment: dict[str, str], port: int) -> Iterator[int]:
    command = [str(place / "bin" / "gunicorn"), "mcpgateway.main:app", "-k", "uvicorn.workers.UvicornWorker"]
    command += ["--preload", "-w", str(WORKERS), "-b", f"127.0.0.1:{port}", "--timeout", "600", "--log-level", "error"]
    with (folder / "contextforge.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
    try:
        wait_until(lambda: process.poll() is not None or _healthy(port), "the start of ContextForge", 180)
        assert process.poll() is None, (folder / "contextforge.log").read_text()[-2000:]
        # One worker answers while another may still be starting, which would be measured with it.
        wait_until(lambda: _rests(process.pid), "the rest after ContextForge's start", 120)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def _rests(pid: int) -> bool:
    before = cpu_seconds(family(pid))
    time.sleep(1)
    return cpu_seconds(family(pid)) - before < 0.2


def _healthy(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
    except httpx.TransportError:
        return False


def _token(place: Path, folder: Path, environment: dict[str, str]) -> str:
    """Mint a token the way its documents do on the command line."""
    command = [str(place / "bin" / "python"), "-m", "mcpgateway.utils.create_jwt_token", "--username", ADMIN, "--admin"]
    command += ["--exp", "600", f"--secret={environment['JWT_SECRET_KEY']}"]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip().splitlines()[-1]


def _register(port: int, token: str, echo: str) -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    tool = {
        "name": "echo",
        "url": echo,
        "description": "Returns the text.",
        "integration_type": "REST",
        "request_type": "POST",
        "input_schema": schema,
        "visibility": "public",
    }
    headers = {"authorization": f"Bearer {token}"}
    answer = httpx.post(f"http://127.0.0.1:{port}/tools", json={"tool": tool}, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
