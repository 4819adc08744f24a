"""Tool pods through SandboxClaims of agent-sandbox (agents.x-k8s.io), where its objects are installed.

The controller of agent-sandbox makes the pod: a claim names a pool, the pool a template, and the template is the pod's
whole description. Each description has one template and one empty pool, named by their digest. The executor's lease
owns template, pool and claim; the claim owns the pod, which has the claim's name.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from services.executor.adapters.sandbox.pods.pod_api import ClusterError, ExecSession, LeaseState, PodApi, PodState
from services.executor.adapters.sandbox.pods.pod_manifest import EXECUTOR_LABEL, KIND_LABEL, MAX_SECONDS

GROUP, VERSION = "extensions.agents.x-k8s.io", "v1beta1"
CLAIMS, TEMPLATES, POOLS = "sandboxclaims", "sandboxtemplates", "sandboxwarmpools"
_KINDS = {CLAIMS: "SandboxClaim", TEMPLATES: "SandboxTemplate", POOLS: "SandboxWarmPool"}
_API = f"/apis/{GROUP}/{VERSION}"
_SELECTOR = "%2C".join(f"{name}%3D{value}" for name, value in KIND_LABEL.items())
_POOL_SECONDS, _POLL_SECONDS = 15.0, 0.1
_GONE, _CONFLICT = 404, 409


class RequestPodApi(PodApi, Protocol):
    """A PodApi that also sends requests about other objects."""

    async def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return the answer. Raises ClusterError."""
        ...


class ClaimPodApi:
    """Implements PodApi: claims pods where agent-sandbox is installed, and creates them itself elsewhere.

    Which of the two is asked once.
    """

    def __init__(self, api: RequestPodApi, namespace: str, *, required: bool) -> None:
        """With `required`, a cluster without agent-sandbox is an error."""
        self._api, self._required = api, required
        self._folder = f"{_API}/namespaces/{namespace}"
        self._claims: bool | None = None
        self._asking = asyncio.Lock()

    async def uses_claims(self) -> bool:
        """Return whether pods are claimed. Raises ClusterError if they must be and cannot be."""
        async with self._asking:
            if self._claims is None:
                self._claims = await self._is_installed()
        if self._required and not self._claims:
            self._claims = None
            raise ClusterError(f"the cluster has no SandboxClaim of {GROUP}/{VERSION}")
        return self._claims

    async def address(self) -> tuple[str, int]:
        """Return the host and port of the API server."""
        return await self._api.address()

    async def create_pod(self, pod: dict[str, Any]) -> None:
        """Claim a pod. It may not exist yet when this returns; until then its phase is `Pending`."""
        if not await self.uses_claims():
            await self._api.create_pod(pod)
            return
        pool = pool_name(pod)
        await self._ensure_pool(pool, pod)
        await self._create(CLAIMS, describe_claim(pod, pool))

    async def read_pod(self, name: str) -> PodState | None:
        """Return a pod; None if there is neither a pod nor a claim of this name."""
        state = await self._api.read_pod(name)
        if state is not None or not await self.uses_claims():
            return state
        claim = await self._find(CLAIMS, name)
        return None if claim is None else _claim_state(claim)

    async def list_pods(self) -> list[PodState]:
        """Return the claims of pods, and pods that were created without one."""
        claims = list[PodState]()
        if await self.uses_claims():
            found = await self._api.request("GET", f"{self._folder}/{CLAIMS}?labelSelector={_SELECTOR}")
            claims = [_claim_state(claim) for claim in found["items"]]
        return [*claims, *await self._api.list_pods()]

    async def delete_pod(self, name: str) -> None:
        """Delete a claim, and with it its pod. A pod alone would be made again."""
        if await self.uses_claims():
            try:
                await self._api.request(
                    "DELETE", f"{self._folder}/{CLAIMS}/{name}", {"propagationPolicy": "Background"}
                )
            except ClusterError as error:
                if error.status != _GONE:
                    raise
            else:
                return
        await self._api.delete_pod(name)

    async def execute(self, pod: str, container: str, argv: tuple[str, ...]) -> ExecSession:
        """Start a program in a running container."""
        return await self._api.execute(pod, container, argv)

    async def create_lease(self, name: str) -> LeaseState:
        """Create a lease; one of the same name is deleted before."""
        return await self._api.create_lease(name)

    async def renew_lease(self, name: str) -> bool:
        """Renew a lease. Returns False if it is gone."""
        return await self._api.renew_lease(name)

    async def list_leases(self) -> list[LeaseState]:
        """Return the leases of executors."""
        return await self._api.list_leases()

    async def delete_lease(self, name: str) -> None:
        """Delete a lease, with all claims and pods that it owns."""
        await self._api.delete_lease(name)

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def _is_installed(self) -> bool:
        try:
            found = await self._api.request("GET", _API)
        except ClusterError as error:
            if error.status == _GONE:
                return False
            raise
        return {CLAIMS, TEMPLATES, POOLS} <= {resource["name"] for resource in found["resources"]}

    async def _ensure_pool(self, name: str, pod: dict[str, Any]) -> None:
        """Make the template and the pool, and wait until the controller knows them.

        A claim that the controller sees before them is looked at again a minute later.
        """
        pool = await self._find(POOLS, name)
        if pool is None:
            await self._create(TEMPLATES, describe_template(pod, name))
            await self._create(POOLS, describe_pool(pod, name))
        try:
            async with asyncio.timeout(_POOL_SECONDS):
                while not (pool or {}).get("status", {}).get("selector"):
                    await asyncio.sleep(_POLL_SECONDS)
                    pool = await self._find(POOLS, name)
        except TimeoutError:
            raise ClusterError("no controller of agent-sandbox looks after its objects") from None

    async def _create(self, kind: str, body: dict[str, Any]) -> None:
        try:
            await self._api.request("POST", f"{self._folder}/{kind}", body)
        except ClusterError as error:
            # Two processes of one description begin together.
            if error.status != _CONFLICT or kind == CLAIMS:
                raise

    async def _find(self, kind: str, name: str) -> dict[str, Any] | None:
        try:
            return await self._api.request("GET", f"{self._folder}/{kind}/{name}")
        except ClusterError as error:
            if error.status == _GONE:
                return None
            raise


def pool_name(pod: dict[str, Any]) -> str:
    """Return the name of the template and pool of a pod's description, for one lease."""
    metadata = pod["metadata"]
    content = json.dumps([pod["spec"], metadata["labels"], metadata["ownerReferences"]], sort_keys=True)
    return f"tools-{hashlib.sha256(content.encode()).hexdigest()[:24]}"


def describe_template(pod: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the template of a pod."""
    spec = {
        "podTemplate": {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]},
        # Policies add up, and the one that the controller would make lets pods reach the Internet.
        "networkPolicyManagement": "Unmanaged",
        "envVarsInjectionPolicy": "Disallowed",
    }
    return _object(TEMPLATES, name, pod, spec)


def describe_pool(pod: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the pool of a template, which keeps no pod ready: the executor keeps its own warm workers."""
    return _object(POOLS, name, pod, {"replicas": 0, "sandboxTemplateRef": {"name": name}})


def describe_claim(pod: dict[str, Any], pool: str) -> dict[str, Any]:
    """Return the claim of a pod."""
    end = datetime.now(UTC) + timedelta(seconds=MAX_SECONDS)
    lifecycle = {"shutdownTime": end.strftime("%Y-%m-%dT%H:%M:%SZ"), "shutdownPolicy": "Delete"}
    return _object(CLAIMS, pod["metadata"]["name"], pod, {"warmPoolRef": {"name": pool}, "lifecycle": lifecycle})


def _object(kind: str, name: str, pod: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    labels = {**KIND_LABEL, EXECUTOR_LABEL: pod["metadata"]["labels"][EXECUTOR_LABEL]}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": _KINDS[kind],
        "metadata": {"name": name, "labels": labels, "ownerReferences": pod["metadata"]["ownerReferences"]},
        "spec": spec,
    }


def _claim_state(claim: dict[str, Any]) -> PodState:
    owners = claim["metadata"].get("ownerReferences") or [{}]
    return PodState(claim["metadata"]["name"], owners[0].get("uid", ""), "Pending", {})
