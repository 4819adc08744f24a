"""Reads the hooks that a deployment declares in one JSON file: a list of objects, each a hook.

All hooks are validated when the process starts, and all problems are reported together: plugins are imported, secrets
and certificates are read, patterns and URLs are checked. Only the availability of a server shows on the first call.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from libs.common.errors import MeshError
from libs.common.json.jsonio import parse
from libs.common.runtime.clock import Clock
from libs.common.runtime.settings import SettingsError
from libs.common.telemetry.log import Log
from services.executor.adapters.hooks.plugin import Plugin, load_plugin
from services.executor.adapters.hooks.webhook import Endpoint, Webhook
from services.executor.domain.hooks.hooks import MAX_HOOKS, Hook, Hooks, Phase
from services.executor.domain.scheduling.heavy_work import HeavyWork

VARIABLE = "TOOLMESH_HOOKS"
MAX_ANSWER_BYTES = 64 * 1024
MAX_FILE_BYTES = 256 * 1024
_MIN_SECRET_BYTES = 16
_MAX_TIMEOUT_MS = 60_000
_DEFAULT_TIMEOUT_MS = 1000
_LOCAL_HOSTS = {"localhost", "127.0.0.1", "::1"}
_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_PATTERN = re.compile(r"[a-z0-9_.*-]{1,320}")
_ENTRY_POINT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_COMMON = {"name", "phase", "tools", "kind", "timeout_ms", "on_error", "may_change_input", "sees_sensitive"}
_KINDS = {"webhook": {"url", "secret_file", "ca_file"}, "plugin": {"entry_point"}}


class DeclaredHooks:
    """The hooks of a file with their plugins and webhooks."""

    def __init__(self, hooks: Sequence[Hook] = (), respondents: Sequence[Plugin | Webhook] = ()) -> None:
        self._hooks, self._respondents = tuple(hooks), tuple(respondents)

    def __str__(self) -> str:
        return " ".join(f"{hook.phase}:{hook.name}" for hook in self._hooks) or "none"

    def open(self, clock: Clock, log: Log, heavy_work: HeavyWork | None = None) -> Hooks:
        """Set the log and return the domain's hooks. `heavy_work` redacts large values."""
        for respondent in self._respondents:
            respondent.attach(log)
        return Hooks(self._hooks, clock, heavy_work)

    async def close(self) -> None:
        """Close every connection."""
        for respondent in self._respondents:
            await respondent.close()


def read_hooks_file(path: Path | None) -> DeclaredHooks:
    """Return the hooks of a file; none if the path is None. Raises SettingsError with all problems."""
    if path is None:
        return DeclaredHooks()
    try:
        declared = parse(path.read_bytes(), max_bytes=MAX_FILE_BYTES)
    except OSError:
        raise SettingsError([f"{VARIABLE}: the file cannot be read"]) from None
    except MeshError as error:
        raise SettingsError([f"{VARIABLE}: not JSON: {error.message}"]) from None
    return parse_hooks(declared)


def parse_hooks(declared: Any) -> DeclaredHooks:
    """Return the hooks of a document. Raises SettingsError with all problems."""
    if not isinstance(declared, list) or len(declared) > MAX_HOOKS:
        raise SettingsError([f"{VARIABLE}: not a list of at most {MAX_HOOKS} hooks"])
    entries = [_HookEntry(index, fields) for index, fields in enumerate(declared)]
    problems = [problem for entry in entries for problem in entry.problems]
    names = [entry.name for entry in entries]
    problems += [f"{name}: the name is taken" for name in dict.fromkeys(names) if names.count(name) > 1]
    if problems:
        raise SettingsError([f"{VARIABLE}: {problem}" for problem in problems])
    return DeclaredHooks([entry.hook() for entry in entries], [entry.respondent for entry in entries])


class _HookEntry:
    """One hook of the file with its problems; it can be built if there are none."""

    respondent: Plugin | Webhook

    def __init__(self, index: int, declared: Any) -> None:
        self._fields: dict[str, Any] = declared if isinstance(declared, dict) else {}
        name = self._fields.get("name")
        self.name = name if isinstance(name, str) and _NAME.fullmatch(name) else f"hook {index}"
        problems = self._check() if isinstance(declared, dict) else iter(["is not an object"])
        self.problems = [f"{self.name}: {problem}" for problem in problems]

    def hook(self) -> Hook:
        """Return the hook. Call it only if there are no problems."""
        fields = self._fields
        return Hook(
            name=self.name,
            phase=Phase(fields["phase"]),
            tools=tuple(fields["tools"]),
            timeout=fields.get("timeout_ms", _DEFAULT_TIMEOUT_MS) / 1000,
            respondent=self.respondent,
            fails_open=self._on_error() == "open",
            may_change_input=fields.get("may_change_input", False),
            sees_sensitive=fields.get("sees_sensitive", False),
        )

    def _check(self) -> Iterator[str]:
        fields, phase, kind = self._fields, self._fields.get("phase"), self._fields.get("kind")
        if fields.get("name") != self.name:
            yield "name is not lower-case letters, digits, dots, dashes and underscores"
        if phase not in list(Phase):
            yield "phase is not pre, approval, post or failure"
        yield from self._check_tools(fields.get("tools"))
        timeout = fields.get("timeout_ms", _DEFAULT_TIMEOUT_MS)
        if type(timeout) is not int or not 1 <= timeout <= _MAX_TIMEOUT_MS:
            yield f"timeout_ms is not a whole number between 1 and {_MAX_TIMEOUT_MS}"
        if self._on_error() not in ("closed", "open"):
            yield "on_error is not closed or open"
        for name in ("may_change_input", "sees_sensitive"):
            if not isinstance(fields.get(name, False), bool):
                yield f"{name} is not true or false"
        if phase == Phase.FAILURE and self._on_error() == "closed":
            yield "on_error is closed, but a call that failed cannot be refused"
        if phase != Phase.PRE and fields.get("may_change_input"):
            yield "may_change_input is only valid in the phase pre"
        if not isinstance(kind, str) or kind not in _KINDS:
            yield "kind is not webhook or plugin"
            return
        if unknown := sorted(fields.keys() - _COMMON - _KINDS[kind]):
            yield f"a {kind} has no {', '.join(unknown)}"
        yield from self._check_plugin() if kind == "plugin" else self._check_webhook()

    def _on_error(self) -> Any:
        return self._fields.get("on_error", "open" if self._fields.get("phase") == Phase.FAILURE else "closed")

    def _check_tools(self, tools: Any) -> Iterator[str]:
        if not isinstance(tools, list) or not tools:
            yield "tools is not a list of patterns"
        elif not all(isinstance(pattern, str) and _PATTERN.fullmatch(pattern) for pattern in tools):
            yield "tools contains something other than patterns of qualified names, such as `core.*`"

    def _check_plugin(self) -> Iterator[str]:
        entry_point = self._fields.get("entry_point")
        if not isinstance(entry_point, str) or not _ENTRY_POINT.fullmatch(entry_point):
            yield "entry_point is not module:function"
            return
        try:
            self.respondent = Plugin(self.name, load_plugin(entry_point), max_bytes=MAX_ANSWER_BYTES)
        except ValueError as error:
            yield f"entry_point {error}"

    def _check_webhook(self) -> Iterator[str]:
        url, secret, trust = self._fields.get("url"), b"", None
        if not isinstance(url, str) or not _is_valid_url(url):
            yield "url is not an https:// URL without credentials, or an http:// one of this machine"
        if "secret_file" in self._fields:
            secret = _read_file(self._fields["secret_file"]).strip()
            if len(secret) < _MIN_SECRET_BYTES:
                yield f"secret_file does not hold at least {_MIN_SECRET_BYTES} bytes"
        if "ca_file" in self._fields:
            try:
                trust = _tls_context(_read_file(self._fields["ca_file"]))
            except (ssl.SSLError, ValueError):
                yield "ca_file does not hold PEM certificates"
        self.respondent = Webhook(self.name, Endpoint(str(url), secret, trust), max_bytes=MAX_ANSWER_BYTES)


def _tls_context(certificates: bytes) -> ssl.SSLContext:
    """Return a context that trusts only these certificates. An empty list would mean the machine's own ones."""
    if not certificates.strip():
        raise ValueError("there are no certificates")
    return ssl.create_default_context(cadata=certificates.decode("ascii"))


def _read_file(path: Any) -> bytes:
    """Return the content of a file; empty if it cannot be read."""
    try:
        return Path(path).read_bytes() if isinstance(path, str) else b""
    except OSError:
        return b""


def _is_valid_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    plain = parts.scheme == "http" and host in _LOCAL_HOSTS
    named = bool(host) and parts.username is None and parts.password is None and not parts.fragment
    return named and url.isascii() and url.isprintable() and " " not in url and (parts.scheme == "https" or plain)
