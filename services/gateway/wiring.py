"""The composition root: the only place that knows which part stands behind which."""

from __future__ import annotations

from libs.common.runtime.clock import SystemClock
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.gateway.adapters.keys import KeySet
from services.gateway.adapters.peers import Peers
from services.gateway.authzen.endpoint import EVALUATION, EVALUATIONS_PATH, AuthzenEndpoint
from services.gateway.authzen.evaluate import Evaluate
from services.gateway.config import Settings
from services.gateway.contract import METHODS, describe
from services.gateway.handlers import Handlers
from services.gateway.policy import PEERS, POLICY
from services.gateway.transport.app import GatewayApplication
from services.gateway.transport.call_pipeline import Calls
from services.gateway.transport.load import Load
from services.gateway.transport.router import App
from services.gateway.transport.rpc import RpcEndpoint
from services.gateway.transport.server import HttpServer
from services.gateway.transport.telemetry import Telemetry


async def build(settings: Settings, log: Log, tracing: Tracing) -> GatewayApplication:
    """Put the gateway together."""
    peers = Peers(settings)
    load = Load(settings.max_concurrent_calls)
    handlers = Handlers(peers.executor, peers.registry, describe(METHODS))
    telemetry, evaluate = Telemetry(log, tracing), Evaluate(peers.registry, peers.authz)
    calls = Calls(handlers.by_method(), METHODS, POLICY, log, telemetry)
    endpoint = RpcEndpoint(calls, load, settings.trace_sample_ratio)
    evaluations = {EVALUATION: evaluate.one, EVALUATIONS_PATH: evaluate.many}
    authzen = AuthzenEndpoint(evaluations, load, telemetry, log, settings.trace_sample_ratio)
    app = App(endpoint, authzen, KeySet(peers.fetch_jwks, SystemClock()), load, log)
    server = HttpServer(settings, app, load, PEERS, log)
    return GatewayApplication(settings, server, load, telemetry, peers.close)
