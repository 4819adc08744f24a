"""The executor's own memory of decisions, in a process of its own: one question to authz, then the same from memory.
Prints one JSON
object with the seconds that each took."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from types import SimpleNamespace

import uvloop

from libs.common.auth.revocations import RevocationView
from libs.common.call_context import Call, enter
from libs.common.ids import new_id
from libs.common.rpc.client import channel_to
from libs.common.runtime.clock import SystemClock
from libs.common.runtime.setting_types import parse_address
from libs.common.trace_context import continue_trace
from services.executor.adapters.authz.decision_client import PolicyAuthorizer
from services.executor.adapters.registry.json_schema import input_contract, output_contract
from services.executor.domain.model import Caller, Question
from services.executor.domain.tool import Mutation, TimeoutClass, Tool

SECONDS = 2.0
_SCHEMA = b'{"type":"object"}'


def _tool() -> Tool:
    return Tool(
        name="tools/core.echo/versions/1.0.0",
        qualified="core.echo",
        version="1.0.0",
        digest="sha256:" + "d" * 64,
        mutation=Mutation.READ_ONLY,
        timeout_class=TimeoutClass.STANDARD,
        own_limit=5.0,
        window=3600.0,
        runner="builtin",
        entry_point="echo",
        input=input_contract(_SCHEMA, ()),
        output=output_contract(_SCHEMA, ()),
        max_result_bytes=1024,
    )


async def measure(options: argparse.Namespace) -> dict[str, float]:
    """Return how long a decision takes that is remembered, and how long one that is not."""
    pki = Path(options.pki)
    files = SimpleNamespace(tls_cert=pki / "executor.pem", tls_key=pki / "executor.key", tls_ca=pki / "ca.pem")
    clock, tool = SystemClock(), _tool()
    enter(Call(method="bench", trace=continue_trace("", "", sample_ratio=0.0), token=options.token.read_text()))
    caller = Caller("did:web:toolmesh.local:users:bench", "token", 4e9, 4e9, session_id="bench")
    async with channel_to("authz", parse_address(options.target), files) as channel:
        news = RevocationView(clock)
        authorizer = PolicyAuthorizer(channel, clock, news)
        question = Question(new_id(), {"text": "hello"}, "sha256:" + "a" * 64)
        version = (await authorizer.decide(tool, caller, question)).policy_set_version
        news.apply((), policy_set_version=version, snapshot=True)
        await authorizer.decide(tool, caller, question)
        count, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < SECONDS:
            for _ in range(1000):
                # As the executor asks: with a question of its own for every call.
                await authorizer.decide(tool, caller, Question("i", {"text": "hello"}, "sha256:a"))
            count += 1000
        return {"remembered": (time.perf_counter() - begin) / count}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--pki", required=True)
    parser.add_argument("--token", type=Path, required=True, help="a file with the token")
    print(json.dumps(uvloop.run(measure(parser.parse_args()))))


if __name__ == "__main__":
    main()
