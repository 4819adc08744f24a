"""A second executor, as the registry sees it: announced, and never called."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
from toolmesh.registry.v1 import runner_service_pb2 as pb
from toolmesh.registry.v1 import runner_service_pb2_grpc as rpc
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb

from libs.common.ids import new_id
from tests.harness.mesh import Mesh

_TIERS = (mpb.SANDBOX_TIER_PROCESS, mpb.SANDBOX_TIER_KERNEL, mpb.SANDBOX_TIER_MACHINE)


@contextmanager
def announced_executor(mesh: Mesh, *packs: str) -> Iterator[None]:
    """Announce an executor with every runner, every sandbox and these packs. Tools that only it could run are admitted,
    and the mesh's own executor cannot run them."""
    request = pb.AnnounceRunnersRequest(
        instance=f"announced-{new_id()}",
        process_id=new_id(),
        runners=mpb.RunnerKind.values()[1:],
        sandbox_tiers=_TIERS,
        packs=[pb.AnnouncedPack(name=pack) for pack in packs],
    )
    ended = threading.Event()
    with mesh.direct_channel("registry", "executor") as channel:
        stub = rpc.RunnerServiceStub(channel)

        def repeat(pause: float) -> None:
            while not ended.wait(pause):
                try:
                    pause = stub.AnnounceRunners(request, timeout=30).lease.seconds / 3
                except grpc.RpcError:
                    pause = 0.1

        first = stub.AnnounceRunners(request, timeout=30)
        thread = threading.Thread(target=repeat, args=(first.lease.seconds / 3,), name="announcing")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
