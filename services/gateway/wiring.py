"""The composition root of the gateway."""

from __future__ import annotations

from libs.common.runtime.clock import SystemClock
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.gateway.adapters.jwks_cache import JwksCache
from services.gateway.adapters.peers import Peers
from services.gateway.authzen.endpoint import EVALUATION, EVALUATIONS_PATH, AuthzenEndpoint
from services.gateway.authzen.evaluate import Evaluate
from services.gateway.config import Settings
from services.gateway.contract import METHODS, describe
from services.gateway.forwarded.methods import handlers as forwarded_handlers
from services.gateway.handlers import Handlers
from services.gateway.policy import PEERS, POLICY
from services.gateway.transport.app import GatewayApplication
from services.gateway.transport.call_pipeline import CallPipeline
from services.gateway.transport.dpop_check import DpopCheck
from services.gateway.transport.in_flight import InFlightRequests
from services.gateway.transport.router import Router
from services.gateway.transport.rpc import RpcEndpoint
from services.gateway.transport.server import HttpServer
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
    calls = CallPipeline(by_method, METHODS, POLICY, log, telemetry)
    dpop_check = DpopCheck(settings.public_origins)
    endpoint = RpcEndpoint(calls, in_flight, dpop_check, settings.trace_sample_ratio)
    evaluations = {EVALUATION: evaluate.one, EVALUATIONS_PATH: evaluate.many}
    authzen = AuthzenEndpoint(evaluations, in_flight, telemetry, log, dpop_check, settings.trace_sample_ratio)
    keys = JwksCache(peers.fetch_jwks, SystemClock())
    app = Router(endpoint, authzen, keys.get, in_flight, log, settings.public_origins)
    server = HttpServer(settings, app, in_flight, PEERS, log)
    return GatewayApplication(settings, server, in_flight, telemetry, peers.close)
