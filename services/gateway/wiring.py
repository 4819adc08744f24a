"""The composition root of the gateway."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from libs.common.runtime.clock import SystemClock
from libs.common.sealing import KEY_BYTES, Seal
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.gateway.adapters.jwks_cache import JwksCache
from services.gateway.adapters.mcp_sessions import RedisSessions
from services.gateway.adapters.mcp_subscriptions import RedisSubscriptions
from services.gateway.adapters.peers import Peers
from services.gateway.adapters.tool_index import ToolIndex
from services.gateway.authzen.endpoint import EVALUATION, EVALUATIONS_PATH, AuthzenEndpoint
from services.gateway.authzen.evaluate import Evaluate
from services.gateway.config import Settings
from services.gateway.console.build import build_console
from services.gateway.console.login.oidc import OidcProvider, OidcSettings
from services.gateway.contract import METHODS, describe
from services.gateway.domain.rate_limits import RateLimits
from services.gateway.forwarded.methods import handlers as forwarded_handlers
from services.gateway.handlers import Handlers
from services.gateway.mcp.context import CallerReader, McpHandler
from services.gateway.mcp.dispatch import McpDispatcher
from services.gateway.mcp.http.endpoint import McpEndpoint
from services.gateway.mcp.http.notification_streams import NotificationStreams
from services.gateway.mcp.http.origin_check import OriginCheck
from services.gateway.mcp.http.running import RunningRequests
from services.gateway.mcp.invocations.answer import AnswerQuestion
from services.gateway.mcp.invocations.follow import FollowInvocation
from services.gateway.mcp.invocations.outcome import ShowOutcome
from services.gateway.mcp.invocations.run_job import RunJob
from services.gateway.mcp.invocations.tasks import Tasks
from services.gateway.mcp.lifecycle import Lifecycle, ping
from services.gateway.mcp.logging_level import SetLevel
from services.gateway.mcp.ports import Sessions
from services.gateway.mcp.session_changes import SessionChanges
from services.gateway.mcp.tools.call_tool import CallTool
from services.gateway.mcp.tools.find_tools import FindTools
from services.gateway.mcp.tools.list_tools import ListTools
from services.gateway.mcp.upstreams.passed_methods import PassedMethods
from services.gateway.mcp.upstreams.resources import Resources
from services.gateway.mcp.upstreams.subscribe import ResourceFollowers, Subscribe
from services.gateway.mcp.views import read_views
from services.gateway.policy import MCP_POLICY, PEERS, POLICY
from services.gateway.streaming.streamed_call import StreamedCalls
from services.gateway.token_exchange.endpoint import TokenExchangeEndpoint
from services.gateway.transport.app import GatewayApplication
from services.gateway.transport.call_pipeline import CallPipeline
from services.gateway.transport.edge_log import EdgeLog
from services.gateway.transport.in_flight import InFlightRequests
from services.gateway.transport.request.dpop_check import DpopCheck
from services.gateway.transport.request.limits import RequestLimits
from services.gateway.transport.router import Router
from services.gateway.transport.rpc import RpcEndpoint
from services.gateway.transport.server.http_server import HttpServer
from services.gateway.transport.telemetry import Telemetry


async def build(settings: Settings, log: Log, tracing: Tracing) -> GatewayApplication:
    """Build the gateway."""
    peers = Peers(settings)
    in_flight = InFlightRequests(settings.max_concurrent_calls)
    handlers = Handlers(
        *(peers.executor, peers.registry, peers.discovery, peers.tokens, peers.audit, peers.usage),
        description=describe(METHODS),
    )
    telemetry, evaluate = Telemetry(log, tracing), Evaluate(peers.registry, peers.authz)
    by_method = {**handlers.by_method(), **forwarded_handlers(peers.channels)}
    rates = RateLimits()
    limits = RequestLimits(CallerReader(), rates)
    calls = CallPipeline(by_method, METHODS, POLICY, log, telemetry, limits)
    dpop_check = DpopCheck(settings.public_origins)
    index, running = ToolIndex(peers.registry_changes, log), RunningRequests()
    edge_log = EdgeLog(index)
    endpoint = RpcEndpoint(
        calls, StreamedCalls(peers.invocations), in_flight, dpop_check, edge_log, limits, settings.trace_sample_ratio
    )
    evaluations = {EVALUATION: evaluate.one, EVALUATIONS_PATH: evaluate.many}
    authzen = AuthzenEndpoint(evaluations, in_flight, telemetry, log, dpop_check, settings.trace_sample_ratio)
    exchange = TokenExchangeEndpoint(
        # Rates of their own: strangers without a token must not push the buckets of callers out.
        *(peers.tokens, in_flight, telemetry, log, RateLimits()),
        audience=settings.audience,
        public_origins=settings.public_origins,
        sample_ratio=settings.trace_sample_ratio,
    )
    keys = JwksCache(peers.fetch_jwks, SystemClock())
    seal, changes = settings.console_keys or Seal([os.urandom(KEY_BYTES)]), SessionChanges()
    sessions = RedisSessions(settings.redis_url, seal, running.cancel, changes, log)
    subscriptions = RedisSubscriptions(settings.redis_url, seal)
    streams = NotificationStreams(index, ResourceFollowers(peers.executor, index, subscriptions), changes)
    in_flight.on_drain(streams.end_all)
    views = {} if settings.mcp_views is None else read_views(settings.mcp_views)
    outcomes, answers = ShowOutcome(peers.executor, index), AnswerQuestion(peers.invocations, sessions)
    follow = FollowInvocation(peers.invocations, log)
    tasks = Tasks(peers.invocations, follow, outcomes, answers)
    jobs = RunJob(follow, outcomes, answers, tasks)
    call = CallTool(peers.executor, index, FindTools(peers.discovery), outcomes, jobs)
    passed = PassedMethods(peers.executor, index, outcomes, jobs)
    resources = Resources(peers.executor, passed)
    handled = _mcp_handlers(peers, index, call, tasks, passed, resources, Subscribe(resources, subscriptions), sessions)
    mcp = McpEndpoint(
        McpDispatcher(handled, MCP_POLICY, telemetry, rates, log),
        sessions,
        sessions,
        running,
        streams,
        in_flight,
        dpop_check,
        OriginCheck(settings.public_origins, settings.mcp_page_origins),
        jobs,
        answers,
        views,
        settings.public_origins,
        edge_log,
        settings.trace_sample_ratio,
    )
    provider, close_provider = _login_provider(settings)
    console = build_console(
        *(peers.approvals, peers.tokens, seal, provider, in_flight, telemetry, log),
        public_origins=settings.public_origins,
        sample_ratio=settings.trace_sample_ratio,
    )
    app = Router(
        *(endpoint, authzen, exchange, mcp, console, keys.get, in_flight, log),
        *(settings.public_origins, views, settings.mcp_authorization_servers),
    )
    server = HttpServer(settings, app, in_flight, PEERS, log)

    async def release() -> None:
        await subscriptions.close()
        await peers.close()
        await close_provider()

    return GatewayApplication(settings, server, in_flight, telemetry, (index, sessions), release)


def _mcp_handlers(
    peers: Peers,
    index: ToolIndex,
    call: CallTool,
    tasks: Tasks,
    passed: PassedMethods,
    resources: Resources,
    subscribe: Subscribe,
    sessions: Sessions,
) -> dict[str, McpHandler]:
    """Return the handler of each method of MCP."""
    lifecycle = Lifecycle(index)
    return {
        "initialize": lifecycle.initialize,
        "ping": ping,
        "server/discover": lifecycle.discover,
        "tools/list": ListTools(peers.registry).list_tools,
        "tools/call": call.call_tool,
        "tasks/get": tasks.get_task,
        "tasks/list": tasks.list_tasks,
        "tasks/result": tasks.get_result,
        "tasks/update": tasks.update_task,
        "tasks/cancel": tasks.cancel_task,
        "logging/setLevel": SetLevel(sessions).set_level,
        "resources/list": resources.list_resources,
        "resources/templates/list": resources.list_templates,
        "resources/read": resources.read_resource,
        "resources/subscribe": subscribe.subscribe,
        "resources/unsubscribe": subscribe.unsubscribe,
        "prompts/list": passed.list_prompts,
        "prompts/get": passed.get_prompt,
        "completion/complete": passed.complete,
    }


def _login_provider(settings: Settings) -> tuple[OidcProvider | None, Callable[[], Awaitable[None]]]:
    """Return the configured OpenID provider, and what closes its connections."""
    if not settings.console_oidc_issuer:
        return None, _nothing_to_close
    # Loaded only here: it costs a start 70 ms and 5 MB, and most gateways have no provider.
    from services.gateway.adapters.oidc_http import OidcHttp

    login = OidcSettings(
        issuer=settings.console_oidc_issuer,
        client_id=settings.console_oidc_client_id,
        client_secret=settings.console_oidc_client_secret,
        scopes=settings.console_oidc_scopes,
    )
    http = OidcHttp(settings.console_oidc_ca)
    return OidcProvider(login, http.fetch), http.close


async def _nothing_to_close() -> None:
    return None
