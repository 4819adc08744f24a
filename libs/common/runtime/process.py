"""Runs a process: reads settings, builds, serves, and on SIGTERM stops in order."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import uvloop

from libs.common.runtime.garbage import LOOK_SECONDS, FullCollections, freeze_startup_objects
from libs.common.runtime.settings import ProcessSettings, SettingsError, describe, load
from libs.common.runtime.start_error import StartError
from libs.common.runtime.tasks import PeriodicTask
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing

S = TypeVar("S", bound=ProcessSettings)
SPANS_SECONDS = 1.0
# Enough for the busiest process; the system's own limit may be lower.
_OPEN_FILES = 65_536
# With the usual 5 ms the event loop waits that long for the interpreter's lock after each of its waits, as long as a
# thread computes; a call waits a dozen times.
_SWITCH_SECONDS = 0.0005


class Application(Protocol):
    """The result of a composition root."""

    async def start(self) -> None:
        """Return when the process accepts calls."""
        ...

    async def stop(self) -> None:
        """Finish accepted calls, release everything, and return."""
        ...


def run(service: str, settings_class: type[S], build: Callable[[S, Log, Tracing], Awaitable[Application]]) -> None:
    """Run one service until SIGTERM or SIGINT. Wrong settings end it with code 2 and a list of problems."""
    try:
        settings = load(settings_class)
    except SettingsError as error:
        for problem in error.problems:
            sys.stderr.write(f"{service}: {problem}\n")
        sys.exit(2)
    _raise_file_limit()
    sys.setswitchinterval(_SWITCH_SECONDS)
    log = Log(service, level=settings.log_level)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            sys.exit(runner.run(_run_until_stopped(service, settings, log, build)))
    finally:
        log.flush()


def _raise_file_limit() -> None:
    """Raise the limit of open files: tools with many connections would exhaust the usual 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def instance_id(settings: ProcessSettings) -> str:
    """Return the name of this process among its replicas."""
    return settings.instance_id or f"{socket.gethostname()}-{os.getpid()}"


async def _run_until_stopped(
    service: str, settings: S, log: Log, build: Callable[[S, Log, Tracing], Awaitable[Application]]
) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    log.info("starting", settings=describe(settings), pid=os.getpid())
    tracing = _tracing(service, settings)
    starting = asyncio.ensure_future(_start(settings, log, tracing, build))
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
    try:
        application = await starting
    except asyncio.CancelledError:
        return 0
    except SettingsError as error:
        # Only `build` can check what a setting points to, such as a file's content.
        for problem in error.problems:
            sys.stderr.write(f"{service}: {problem}\n")
        return 2
    except StartError as error:
        sys.stderr.write(f"{service}: {error}\n")
        return 1
    except Exception as error:
        log.error("could not start", cause=error)
        return 1
    freeze_startup_objects()
    collections = PeriodicTask("garbage-collection", FullCollections().step, log, interval=LOOK_SECONDS)
    await collections.start()
    log.info("ready")
    await stopping
    log.info("stopping")
    await collections.stop()
    code = await _stop(application, settings, log)
    await _send_spans(tracing)
    log.info("stopped")
    return code


async def _start(
    settings: S, log: Log, tracing: Tracing, build: Callable[[S, Log, Tracing], Awaitable[Application]]
) -> Application:
    application = await build(settings, log, tracing)
    await application.start()
    return application


async def _stop(application: Application, settings: ProcessSettings, log: Log) -> int:
    try:
        async with asyncio.timeout(settings.drain_delay_seconds + settings.drain_seconds + 2):
            await application.stop()
    except TimeoutError:
        log.warning("ended before everything was released")
        return 1
    return 0


async def _send_spans(tracing: Tracing) -> None:
    """Send the last spans, but do not let a slow collector delay the end."""
    # Not a thread of the loop's executor, which would be waited for.
    sending = threading.Thread(target=tracing.shutdown, name="last-spans", daemon=True)
    sending.start()
    await asyncio.to_thread(sending.join, SPANS_SECONDS)


def _tracing(service: str, settings: ProcessSettings) -> Tracing:
    if not settings.otlp_endpoint:
        return Tracing()
    from libs.common.telemetry.otlp import tracer_provider

    return Tracing(tracer_provider(service, instance_id(settings), settings.otlp_endpoint))
