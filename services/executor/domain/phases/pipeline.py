"""The parts that every use case of the executor is made of."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common.auth.coverage import Satisfies
from libs.common.redaction.tenant_scanners import TenantScanners
from libs.common.runtime.clock import Clock
from services.executor.domain.hooks.hooks import Hooks
from services.executor.domain.hooks.invocation_hooks import Hooking
from services.executor.domain.idempotency.claim import Keys
from services.executor.domain.phases.execute import Execution
from services.executor.domain.phases.finish import Closing
from services.executor.domain.phases.preflight import Opening
from services.executor.domain.phases.supervise import InFlight, Serving
from services.executor.domain.phases.verify import Verification
from services.executor.domain.ports import (
    AuditTrail,
    Authorizer,
    Claims,
    Observer,
    PreviewTokens,
    Quarantine,
    Runner,
    Spans,
    Spending,
    ToolView,
)
from services.executor.domain.results.cache import ResultCache
from services.executor.domain.results.store import Storing
from services.executor.domain.scheduling.budget import Accounts
from services.executor.domain.scheduling.slots import Turns


@dataclass(frozen=True, slots=True)
class Ports:
    """What calls go through."""

    tools: ToolView
    authorizer: Authorizer
    audit: AuditTrail
    runner: Runner
    claims: Claims
    spending: Spending
    previews: PreviewTokens
    quarantine: Quarantine
    cache: ResultCache
    storing: Storing
    turns: Turns
    hooks: Hooks
    observer: Observer
    spans: Spans
    clock: Clock
    scanners: TenantScanners
    satisfies: Satisfies


class Parts:
    """Opening, execution, closing, and what sees an invocation through all of them."""

    def __init__(self, ports: Ports, *, in_flight: InFlight, audit_wait: float) -> None:
        self.clock, self.spans, self.turns = ports.clock, ports.spans, ports.turns
        self.tools, self.claims = ports.tools, ports.claims
        self.cache, self.storing = ports.cache, ports.storing
        hooking = self.hooking = Hooking(ports.hooks, ports.scanners)
        accounts = Accounts(ports.spending, ports.clock, ports.observer)
        self.closing = Closing(ports.audit, ports.claims, ports.observer, ports.clock, audit_wait=audit_wait)
        self.opening = Opening(
            tools=ports.tools,
            authorizer=ports.authorizer,
            audit=ports.audit,
            runner=ports.runner,
            previews=ports.previews,
            hooking=hooking,
            clock=ports.clock,
            scanners=ports.scanners,
            satisfies=ports.satisfies,
            closing=self.closing,
        )
        self.execution = Execution(ports.runner, ports.claims, accounts, ports.clock)
        self.verification = Verification(
            self.opening, self.closing, hooking, ports.storing, ports.quarantine, ports.claims
        )
        self.keys = Keys(ports.claims, ports.clock)
        self.serving = Serving(self.closing, accounts, hooking, ports.observer, ports.clock, in_flight)
