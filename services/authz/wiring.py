"""The composition root of authz: the only file that chooses adapters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncEngine
from toolmesh.authz.v1 import authz_service_pb2_grpc as rpc
from toolmesh.authz.v1 import policy_service_pb2_grpc as policy_rpc
from toolmesh.authz.v1 import token_service_pb2_grpc as token_rpc

from libs.audit_client.act import ActEncoder
from libs.audit_client.outbox import ActDelivery, ActRecorder
from libs.common.auth.constraints import ConstraintChecker, constraint_cost
from libs.common.auth.jose import MAX_TOKEN_BYTES
from libs.common.auth.revocations import RevocationView
from libs.common.redis_wakeup import RedisWakeup
from libs.common.rpc.application import Resource, RpcApplication, channel_resource, engine_resource
from libs.common.rpc.client import channel_to
from libs.common.rpc.server import Service
from libs.common.runtime.clock import Clock, SystemClock
from libs.common.sql.engine import engine_for
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.authz.adapters.cedar.active_sets import ActivePolicySets
from services.authz.adapters.cedar.compiler import compiler_for, read_documents
from services.authz.adapters.issuers.did_documents import DidDocuments, DidFolder, DidUrl
from services.authz.adapters.issuers.did_resolver import MeshDidResolver
from services.authz.adapters.issuers.https_documents import HttpsDocuments
from services.authz.adapters.issuers.tokens import TrustedIssuerVerifier
from services.authz.adapters.issuers.trusted_issuers import read_trusted_issuers
from services.authz.adapters.keys.key_folder import KeyFolder
from services.authz.adapters.keys.key_ring_verifier import KeyRingVerifier
from services.authz.adapters.postgres.decision_journal import DecisionJournal
from services.authz.adapters.postgres.invalidation_feed import PolledInvalidationFeed
from services.authz.adapters.postgres.ledger import PostgresLedger
from services.authz.adapters.postgres.policy_sets import PostgresPolicySets
from services.authz.adapters.postgres.revocations import PostgresRevocations
from services.authz.adapters.postgres.session_labels import PostgresSessionLabels
from services.authz.config import Settings
from services.authz.domain.decisions.batch_check import BatchCheck
from services.authz.domain.decisions.check import Check
from services.authz.domain.decisions.filter_tools import FilterTools
from services.authz.domain.policies.activate_policy_set import ActivatePolicySet
from services.authz.domain.policies.ask_policy_set import AskPolicySet
from services.authz.domain.policies.explain_decision import ExplainDecision
from services.authz.domain.policies.get_policy_set import GetPolicySet
from services.authz.domain.policies.list_policy_sets import ListPolicySets
from services.authz.domain.policies.model import NewPolicySet
from services.authz.domain.policies.put_policy import PutPolicy
from services.authz.domain.policies.replay_policy_set import ReplayPolicySet
from services.authz.domain.policies.rollback_policy_set import RollbackPolicySet
from services.authz.domain.policies.validate_policy import ValidatePolicy
from services.authz.domain.ports import KeyRing
from services.authz.domain.revocation.list_revocations import ListRevocations
from services.authz.domain.revocation.revoke_token import RevokeToken
from services.authz.domain.revocation.watch_invalidations import WatchInvalidations
from services.authz.domain.tokens.delegate_token import DelegateToken
from services.authz.domain.tokens.deriver import TokenDeriver
from services.authz.domain.tokens.exchange_token import ExchangeToken
from services.authz.domain.tokens.introspect_token import IntrospectToken
from services.authz.domain.tokens.issue_assertion import IssueAssertion
from services.authz.domain.tokens.issue_token import IssueToken
from services.authz.domain.tokens.minter import TokenMinter
from services.authz.domain.tokens.narrow_token import NarrowToken
from services.authz.handlers.authz import AuthzHandlers
from services.authz.handlers.policies import PolicyHandlers
from services.authz.handlers.tokens import TokenHandlers
from services.authz.migrations import SCHEMA
from services.authz.policy import POLICY

WAKEUP_CHANNEL = "toolmesh:authz:invalidations"
POLICIES = Path(__file__).parent / "policies"


async def build(settings: Settings, log: Log, tracing: Tracing) -> RpcApplication:
    """Compose the process with the shipped policies. Raises when keys or policies are invalid."""
    return compose(settings, log, tracing, clock=SystemClock(), policies=POLICIES)


def compose(settings: Settings, log: Log, tracing: Tracing, *, clock: Clock, policies: Path) -> RpcApplication:
    """Compose the process with the given clock and policy folder."""
    # The age of the view is measured with the system clock, also in tests that set the time.
    view = RevocationView(SystemClock())
    keys = KeyFolder(settings.signing_keys, clock, log, revoked=view.revoked_keys)
    verifier = KeyRingVerifier(
        keys,
        issuer=settings.issuer,
        audience=settings.audience,
        max_lifetime=settings.max_token_lifetime,
        revocations=view,
    )
    database = engine_for(settings.database_url, schema=SCHEMA.name)
    acts = ActRecorder(ActEncoder(SCHEMA.name))
    minting = _tokens(settings, keys, PostgresLedger(database, acts), clock, log)
    policy = _policies(settings, policies, PostgresPolicySets(database, acts), database, clock, log)
    check = policy.check
    handlers = AuthzHandlers(
        issue_token=minting.issue,
        introspect_token=IntrospectToken(verifier),
        keys=keys,
        check=check,
        batch_check=BatchCheck(check),
        filter_tools=FilterTools(check),
    )
    revocations = PostgresRevocations(database, acts)
    feed, following = _invalidations(settings, revocations, view, clock, log, policies=policy.active)
    policy_handlers = _policy_handlers(policy, clock, feed.announce)
    tokens = TokenHandlers(
        exchange_token=minting.exchange,
        delegate_token=minting.delegate,
        narrow_token=minting.narrow,
        issue_assertion=IssueAssertion(keys, clock, settings.issuer, settings.audience),
        revoke_token=RevokeToken(revocations, feed, keys, clock, settings.max_token_lifetime),
        list_revocations=ListRevocations(revocations, clock),
        watch_invalidations=WatchInvalidations(feed),
    )
    return RpcApplication(
        settings,
        log,
        tracing,
        policy=POLICY,
        verifier=verifier,
        services=[
            Service("toolmesh.authz.v1.AuthzService", lambda s: rpc.add_AuthzServiceServicer_to_server(handlers, s)),
            Service(
                "toolmesh.authz.v1.TokenService", lambda s: token_rpc.add_TokenServiceServicer_to_server(tokens, s)
            ),
            Service(
                "toolmesh.authz.v1.PolicyService",
                lambda s: policy_rpc.add_PolicyServiceServicer_to_server(policy_handlers, s),
            ),
        ],
        resources=[
            engine_resource(database, SCHEMA),
            *policy.resources,
            *following,
            *_act_delivery(settings, database, acts, log),
        ],
        before_drain=feed.end,
    )


def _act_delivery(settings: Settings, database: AsyncEngine, acts: ActRecorder, log: Log) -> list[Resource]:
    """Return the resources that deliver acts to the audit log; without its address, acts wait in the database."""
    if settings.audit_address is None:
        log.warning("acts are not delivered: no audit address")
        return []
    channel = channel_to("audit", settings.audit_address, settings, for_callers=False)
    delivery = ActDelivery(database, acts, channel, log)
    return [channel_resource(channel), Resource(delivery.start, delivery.stop)]


def _invalidations(
    settings: Settings,
    revocations: PostgresRevocations,
    view: RevocationView,
    clock: Clock,
    log: Log,
    *,
    policies: ActivePolicySets,
) -> tuple[PolledInvalidationFeed, list[Resource]]:
    """Return the invalidation feed and its resources. Without Redis it only polls."""
    feed = PolledInvalidationFeed(
        revocations,
        view,
        clock,
        log,
        policy_set_version=lambda: policies.active_version,
        refresh=policies.refresh,
    )
    resources = [Resource(feed.start, feed.stop)]
    if settings.redis_url:
        wakeup = RedisWakeup(settings.redis_url, WAKEUP_CHANNEL, feed.wake, log)
        feed.attach(wakeup.notify)
        resources.append(Resource(wakeup.start, wakeup.stop))
    return feed, resources


@dataclass(frozen=True)
class _Policies:
    """The components of policy decisions."""

    sets: PostgresPolicySets
    active: ActivePolicySets
    journal: DecisionJournal
    labels: PostgresSessionLabels
    check: Check
    resources: list[Resource]


def _policies(
    settings: Settings, folder: Path, sets: PostgresPolicySets, database: AsyncEngine, clock: Clock, log: Log
) -> _Policies:
    """Return the components of policy decisions. Raises PolicySetError when the shipped policies are invalid."""
    compiler, documents = compiler_for(folder), read_documents(folder)
    shipped = compiler.compile(documents)
    active = ActivePolicySets(sets, compiler, log)
    journal = DecisionJournal(
        database,
        log,
        seal=settings.sealing_keys,
        clock=clock,
        retention=timedelta(days=settings.argument_retention_days),
    )
    labels = PostgresSessionLabels(database)
    check = Check(
        engines=active,
        labels=labels,
        journal=journal,
        satisfies=ConstraintChecker(),
        clock=clock,
        environment=settings.environment,
        ttl=timedelta(seconds=settings.decision_ttl),
    )

    async def load_active_set() -> None:
        comment = "The policies that Toolmesh ships with."
        first = NewPolicySet(shipped.version, documents, len(shipped.policies), comment, SCHEMA.name, clock.now())
        await active.start(first)

    return _Policies(
        sets, active, journal, labels, check, [Resource(load_active_set), Resource(journal.start, journal.stop)]
    )


def _policy_handlers(policy: _Policies, clock: Clock, announce: Callable[[], None]) -> PolicyHandlers:
    sets, active, journal = policy.sets, policy.active, policy.journal
    return PolicyHandlers(
        put_policy=PutPolicy(sets, active, clock),
        validate_policy=ValidatePolicy(sets, active),
        get_policy_set=GetPolicySet(sets),
        list_policy_sets=ListPolicySets(sets),
        activate_policy_set=ActivatePolicySet(sets, active, clock, announce),
        rollback_policy_set=RollbackPolicySet(sets, active, clock, announce),
        explain_decision=ExplainDecision(journal, active, policy.labels),
        replay_policy_set=ReplayPolicySet(sets, active, journal, policy.labels),
        ask_policy_set=AskPolicySet(sets, active, clock, policy.check.environment),
    )


@dataclass(frozen=True)
class _Tokens:
    """The use cases that mint tokens."""

    issue: IssueToken
    exchange: ExchangeToken
    delegate: DelegateToken
    narrow: NarrowToken


def _tokens(settings: Settings, keys: KeyRing, ledger: PostgresLedger, clock: Clock, log: Log) -> _Tokens:
    """Return the use cases that mint tokens. Raises TrustedIssuersError when the file of external issuers is
    invalid."""
    minter = TokenMinter(keys, ledger, clock, settings.issuer, MAX_TOKEN_BYTES)
    deriver = TokenDeriver(minter, constraint_cost)
    lifetime = settings.max_token_lifetime
    trusted = read_trusted_issuers(settings.trusted_issuers, max_lifetime=lifetime) if settings.trusted_issuers else ()
    return _Tokens(
        issue=IssueToken(minter, settings.audience, lifetime, constraint_cost),
        exchange=ExchangeToken(minter, TrustedIssuerVerifier(trusted, clock, log), settings.audience),
        delegate=DelegateToken(deriver, MeshDidResolver(settings.trust_domain, _did_documents(settings), clock)),
        narrow=NarrowToken(deriver),
    )


def _did_documents(settings: Settings) -> DidDocuments | None:
    source = settings.did_resolver
    if not source:
        return None
    return DidFolder(source) if isinstance(source, Path) else DidUrl(source, HttpsDocuments())
