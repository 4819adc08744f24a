"""The suites: each takes the stage and yields its rows as they are measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.rows import Row
from bench.stage import Stage
from bench.suites import audit, authz, call, executor, registry

SUITES: dict[str, Callable[[Stage], Iterator[Row]]] = {
    "call": call.run,
    "executor": executor.run,
    "authz": authz.run,
    "audit": audit.run,
    "registry": registry.run,
}
