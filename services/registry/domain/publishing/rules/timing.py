"""Admission rules for timeouts and idempotency windows."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise

from libs.common.errors import Violation
from services.registry.domain.publishing.manifest import Manifest, seconds

# The time limit of each class. `async` is bounded only by the field rules of the contract.
CLASS_SECONDS = {
    "interactive": Decimal("0.5"),
    "standard": Decimal(5),
    "long_running": Decimal(300),
    "async": Decimal(86_400),
}
_SHORTEST_WINDOW = Decimal(3600)
_PROMISED = ("latency_p50", "latency_p95", "latency_p99")


def check_timeouts(manifest: Manifest) -> Iterator[Violation]:
    """Refuse timeouts above the limit of their class."""
    execution = manifest.execution
    limit = CLASS_SECONDS[execution["timeout_class"]]
    given = {field: seconds(execution[field]) for field in ("timeout_default", "timeout_max") if field in execution}
    for field, value in given.items():
        if value > limit:
            yield Violation(f"manifest.execution.{field}", "timeout.class", f"is more than the {limit} s of its class")
    if len(given) == 2 and given["timeout_default"] > given["timeout_max"]:
        yield Violation("manifest.execution.timeout_default", "timeout.order", "is more than timeout_max")


def check_service_level(manifest: Manifest) -> Iterator[Violation]:
    """Refuse promised times out of order, or beyond the timeout that ends every call."""
    promised = manifest.part("sla")
    given = [(field, seconds(promised[field])) for field in _PROMISED if field in promised]
    for (_, faster), (field, slower) in pairwise(given):
        if slower < faster:
            yield Violation(f"manifest.sla.{field}", "sla.order", "is less than the time of fewer calls")
    limit = CLASS_SECONDS[manifest.execution["timeout_class"]]
    if "timeout_max" in manifest.execution:
        limit = min(limit, seconds(manifest.execution["timeout_max"]))
    for field, value in given:
        if value > limit:
            message = f"is more than the {limit} s after which a call is ended"
            yield Violation(f"manifest.sla.{field}", "sla.timeout", message)


def check_idempotency_window(manifest: Manifest) -> Iterator[Violation]:
    """Require a window that outlives the call: a forgotten key would allow the effect to happen twice."""
    window = manifest.part("idempotency").get("window")
    if window is None:
        return
    execution = manifest.execution
    longest = CLASS_SECONDS[execution["timeout_class"]]
    if "timeout_max" in execution:
        longest = min(longest, seconds(execution["timeout_max"]))
    least = max(_SHORTEST_WINDOW, 2 * longest)
    if seconds(window) < least:
        yield Violation("manifest.idempotency.window", "idempotency.window", f"is less than {least} s")
