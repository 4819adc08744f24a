"""Starts parts in order, restarts them when they end, and stops them in reverse order."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localmesh.process.child import Child, describe_exit, spawn
from localmesh.process.part import Part, PartError
from localmesh.state.files import last_lines, size_of
from localmesh.view.progress import Event, Kind, Report

PROBE_SECONDS = 0.04
FIRST_BACKOFF = 0.1
LONGEST_BACKOFF = 5.0
# A part that stayed well this long has earned a quick restart again.
HEALTHY_SECONDS = 30.0
SHOWN_LOG_LINES = 15
TELL_AGAIN_SECONDS = 1.0


@dataclass
class Member:
    """A part with its process and state."""

    part: Part
    child: Child | None = None
    ready: bool = False
    restarts: int = 0
    restarting: bool = False
    """An operator asked for a new process: its end is no crash."""
    log_begins: int = 0
    """Where in its log the present life of the part begins."""

    @property
    def pid(self) -> int | None:
        return self.child.pid if self.child is not None and self.child.is_running else None


class Supervisor:
    """Owns the child processes of one mesh."""

    def __init__(
        self,
        parts: Sequence[Part],
        log_file: Callable[[str], Path],
        report: Report,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.members = {part.name: Member(part) for part in parts}
        self._log_file = log_file
        self._report = report
        self._changed = changed
        self._up = {part.name: asyncio.Event() for part in parts}
        self._keepers: list[asyncio.Task[None]] = []
        self._failure: asyncio.Future[PartError] | None = None
        self._again: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Returns when every part is ready. Raises PartError as soon as one fails to start."""
        self._failure = asyncio.get_running_loop().create_future()
        self._keepers = [asyncio.create_task(self._keep(member)) for member in self.members.values()]
        everything = asyncio.create_task(self._all_up())
        try:
            await asyncio.wait((everything, self._failure), return_when=asyncio.FIRST_COMPLETED)
        finally:
            everything.cancel()
        if self._failure.done():
            raise self._failure.result()

    async def stop(self) -> None:
        """Stops every part in reverse order, each within its time, and leaves no process behind."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        for member in reversed(self.members.values()):
            await self._stop_one(member)
        self._tell_no_more()

    async def restart(self, name: str) -> None:
        """Ends a part as `stop` does; its keeper starts it again at once. A part that is not ready is left alone: it is
        being started already."""
        member = self.members.get(name)
        if member is None or not member.ready or member.child is None:
            return
        member.restarting = True
        with contextlib.suppress(OSError):
            await member.part.quiesce()
        await member.child.stop(member.part.stop_signal, member.part.stop_seconds)

    def kill(self) -> None:
        """Kills every child at once."""
        for member in self.members.values():
            if member.child is not None:
                member.child.kill()

    async def _all_up(self) -> None:
        for up in self._up.values():
            await up.wait()

    async def _keep(self, member: Member) -> None:
        part = member.part
        for name in part.after:
            await self._up[name].wait()
        try:
            began = _now()
            await part.initialize()
            await self._bring_up(member)
            await part.provision()
        except Exception as error:  # whatever it is, the mesh must come down and say so
            self._fail(member, error)
            return
        self._up[part.name].set()
        count = sum(up.is_set() for up in self._up.values())
        self._report(Event("ready", part.name, f"{count} of {len(self._up)}", _now() - began))
        await self._keep_alive(member)

    async def _keep_alive(self, member: Member) -> None:
        backoff = FIRST_BACKOFF
        while member.child is not None:
            well_since = _now()
            cause = describe_exit(await member.child.wait())
            died = _now()
            self._note(member, ready=False)
            if died - well_since > HEALTHY_SECONDS or member.restarting:
                backoff = FIRST_BACKOFF
            kind: Kind = "restarted" if member.restarting else "back"
            wait, member.restarting = 0.0 if member.restarting else backoff, False
            backoff = await self._bring_back(member, wait, backoff)
            self._report(Event(kind, member.part.name, cause, _now() - died, member.restarts))

    async def _bring_back(self, member: Member, wait: float, backoff: float) -> float:
        """Tries until the part is ready again, first after `wait`; returns how long to wait the next time."""
        while True:
            await asyncio.sleep(wait)
            wait = backoff = min(backoff * 2, LONGEST_BACKOFF)
            member.restarts += 1
            try:
                await self._bring_up(member)
            except Exception as error:  # a part that cannot come back now may later: nothing ends its keeper
                self._report(Event("died", member.part.name, _reason(error), backoff))
            else:
                return backoff

    async def _bring_up(self, member: Member) -> None:
        part = member.part
        member.log_begins = size_of(self._log_file(part.name))
        await part.prepare()
        member.child = child = self._spawn(part)
        self._note(member, ready=False)
        try:
            await _until_up(part, child)
        except Exception:
            # A retry starts another process, and two would share a port or a folder.
            child.kill()
            await child.wait()
            raise
        self._note(member, ready=True)

    def _spawn(self, part: Part) -> Child:
        log = os.open(self._log_file(part.name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            return spawn(part.launch, output=log)
        finally:
            os.close(log)

    async def _stop_one(self, member: Member) -> None:
        child = member.child
        if child is None or not child.is_running:
            return
        began = _now()
        with contextlib.suppress(OSError):
            await member.part.quiesce()
        by_itself = await child.stop(member.part.stop_signal, member.part.stop_seconds)
        self._note(member, ready=False)
        self._report(Event("stopped", member.part.name, "" if by_itself else " (killed)", _now() - began))

    def _note(self, member: Member, *, ready: bool) -> None:
        member.ready = ready
        self._tell()

    def _tell(self) -> None:
        """Stores what runs. A failure (a full disk) is retried later and never stops a restart."""
        told_before = self._again is None
        self._tell_no_more()
        try:
            self._changed()
        except OSError as error:
            if told_before:
                self._report(Event("note", text=f"what runs where could not be written down: {error}"))
            self._again = asyncio.get_running_loop().call_later(TELL_AGAIN_SECONDS, self._tell)

    def _tell_no_more(self) -> None:
        if self._again is not None:
            self._again.cancel()
        self._again = None

    def _fail(self, member: Member, error: Exception) -> None:
        reason = _reason(error)
        lines = tuple(last_lines(self._log_file(member.part.name), SHOWN_LOG_LINES, begin=member.log_begins))
        self._report(Event("failed", member.part.name, reason, lines=lines))
        if self._failure is not None and not self._failure.done():
            misled = isinstance(error, PartError) and error.misled
            self._failure.set_result(PartError(member.part.name, reason, misled=misled))


def _reason(error: Exception) -> str:
    return error.reason if isinstance(error, PartError) else f"{type(error).__name__}: {error}"


async def _until_up(part: Part, child: Child) -> None:
    """Return when the part does its work. Raises PartError when it has ended before that, or its time is over."""
    probing = asyncio.create_task(_until_ready(part))
    ending = asyncio.create_task(child.wait())
    try:
        await asyncio.wait({probing, ending}, timeout=part.ready_seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        probing.cancel()
        ending.cancel()
    if ending.done():
        code = ending.result()
        raise PartError(part.name, describe_exit(code), misled=code == part.misled_code)
    if not probing.done():
        raise PartError(part.name, f"not ready after {part.ready_seconds:g} s")
    probing.result()


async def _until_ready(part: Part) -> None:
    while True:
        with contextlib.suppress(OSError):
            if await part.probe():
                return
        await asyncio.sleep(PROBE_SECONDS)


def _now() -> float:
    return asyncio.get_running_loop().time()
