"""Builds the phases that the use cases of the executor share."""

from __future__ import annotations

from dataclasses import dataclass, field

from libs.common.auth.coverage import Satisfies
from libs.common.redaction.tenant_scanners import TenantScanners
from libs.common.runtime.clock import Clock
from services.executor.domain.approvals.gate import ApprovalGate
from services.executor.domain.approvals.ticket import Approvals
from services.executor.domain.hooks.hooks import Hooks
from services.executor.domain.hooks.invocation_hooks import InvocationHooks
from services.executor.domain.idempotency.claim import IdempotencyClaims
from services.executor.domain.phases.authorize import Authorization
from services.executor.domain.phases.execute import Execution
from services.executor.domain.phases.finish import Completion
from services.executor.domain.phases.preflight import Preflight
from services.executor.domain.phases.supervise import InFlight, Supervisor
from services.executor.domain.phases.verify import ResultVerifier
from services.executor.domain.ports import (
    AuditTrail,
    Authorizer,
    ClaimStore,
    CommitLog,
    Observer,
    PreviewTokens,
    Quarantine,
    Runner,
    Spans,
    Spending,
    ToolLogSink,
    ToolView,
)
from services.executor.domain.results.cache import ResultCache
from services.executor.domain.results.store import LargeResults
from services.executor.domain.scheduling.budget import BudgetReservations
from services.executor.domain.scheduling.heavy_work import HeavyWork
from services.executor.domain.scheduling.offload import Offload
from services.executor.domain.scheduling.shielded import ShieldedSteps
from services.executor.domain.scheduling.slots import SlotPool


@dataclass(frozen=True, slots=True)
class Ports:
    """The adapters and shared services that calls need."""

    tools: ToolView
    authorizer: Authorizer
    audit: AuditTrail
    runner: Runner
    claims: ClaimStore
    commits: CommitLog
    spending: Spending
    previews: PreviewTokens
    quarantine: Quarantine
    cache: ResultCache
    large_results: LargeResults
    slots: SlotPool
    logs: ToolLogSink
    hooks: Hooks
    observer: Observer
    spans: Spans
    clock: Clock
    scanners: TenantScanners
    satisfies: Satisfies
    approvals: Approvals
    heavy_work: HeavyWork = field(default_factory=HeavyWork)


class Pipeline:
    """The phases, each with the ports that it needs, and the ports themselves."""

    def __init__(self, ports: Ports, *, in_flight: InFlight, audit_wait: float, start_seconds: float = 30.0) -> None:
        self.ports = ports
        clock, observer, scanners = ports.clock, ports.observer, ports.scanners
        hooks = self.hooks = InvocationHooks(ports.hooks, scanners)
        steps = self.steps = ShieldedSteps()
        budget = BudgetReservations(ports.spending, clock, observer)
        offload = Offload(ports.heavy_work, clock)
        self.gate = ApprovalGate(ports.approvals, ports.tools, ports.authorizer, offload, clock)
        self.preflight = Preflight(
            tools=ports.tools,
            audit=ports.audit,
            runner=ports.runner,
            scanners=scanners,
            offload=offload,
            clock=clock,
        )
        self.authorization = Authorization(
            tools=ports.tools,
            authorizer=ports.authorizer,
            audit=ports.audit,
            previews=ports.previews,
            hooks=hooks,
            scanners=scanners,
            satisfies=ports.satisfies,
            gate=self.gate,
            offload=offload,
            clock=clock,
            audit_wait=audit_wait,
        )
        self.claims = IdempotencyClaims(ports.claims, ports.audit, steps, observer, clock, store_timeout=audit_wait)
        self.execution = Execution(
            ports.runner, ports.claims, budget, ports.logs, scanners, clock, self.gate, start_seconds=start_seconds
        )
        self.verifier = ResultVerifier(
            hooks=hooks,
            large_results=ports.large_results,
            quarantine=ports.quarantine,
            held=ports.claims.is_held,
            claims=self.claims,
            steps=steps,
            scanners=scanners,
            heavy_work=ports.heavy_work,
            clock=clock,
        )
        self.completion = Completion(ports.audit, self.claims, steps, clock, audit_wait=audit_wait)
        self.supervisor = Supervisor(
            completion=self.completion,
            steps=steps,
            budget=budget,
            hooks=hooks,
            observer=observer,
            clock=clock,
            in_flight=in_flight,
        )
        self.audit_wait = audit_wait
