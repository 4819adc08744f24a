"""The pods and leases of one namespace, through the official client and the API server's WebSocket."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import websockets.asyncio.client
from websockets.exceptions import WebSocketException

from services.executor.adapters.sandbox.pods.exec_session import PROTOCOL, WebSocketSession
from services.executor.adapters.sandbox.pods.pod_api import ClusterError, ContainerState, LeaseState, PodState
from services.executor.adapters.sandbox.pods.pod_manifest import KIND_LABEL

T = TypeVar("T")
_TIMEOUT = (5.0, 15.0)
_GONE, _CONFLICT = 404, 409
_MESSAGE_BYTES, _QUEUED_MESSAGES = 1 << 20, 4
_SELECTOR = ",".join(f"{name}={value}" for name, value in KIND_LABEL.items())
_LEASE_LABELS = {"app.kubernetes.io/name": "executor-of-tools"}
_LEASE_SELECTOR = ",".join(f"{name}={value}" for name, value in _LEASE_LABELS.items())
_DELETE = {"gracePeriodSeconds": 1, "propagationPolicy": "Background"}


class KubernetesPodApi:
    """Implements PodApi. Connects with its first request."""

    def __init__(self, namespace: str, kubeconfig: Path | None = None) -> None:
        """Without a kubeconfig it uses the service account of its pod."""
        self._namespace, self._kubeconfig = namespace, kubeconfig
        self._connecting = asyncio.Lock()
        self._client: Any = None
        self._core: Any = None
        self._coordination: Any = None

    async def address(self) -> tuple[str, int]:
        """Return the host and port of the API server."""
        await self._connect()
        parts = urlsplit(self._client.configuration.host)
        return parts.hostname or "", parts.port or 443

    async def create_pod(self, pod: dict[str, Any]) -> None:
        """Create a pod."""
        await self._ask(lambda: self._core.create_namespaced_pod(self._namespace, pod, _request_timeout=_TIMEOUT))

    async def read_pod(self, name: str) -> PodState | None:
        """Return a pod; None if there is none of this name."""
        try:
            found = await self._ask(
                lambda: self._core.read_namespaced_pod(name, self._namespace, _request_timeout=_TIMEOUT)
            )
        except ClusterError as error:
            if error.status == _GONE:
                return None
            raise
        return _pod_state(found)

    async def list_pods(self) -> list[PodState]:
        """Return the pods of tools. A pod of a Sandbox is left out: its claim stands for it."""
        found = await self._ask(
            lambda: self._core.list_namespaced_pod(self._namespace, label_selector=_SELECTOR, _request_timeout=_TIMEOUT)
        )
        return [_pod_state(pod) for pod in found.items if _owner_kind(pod) != "Sandbox"]

    async def delete_pod(self, name: str) -> None:
        """Delete a pod and give its processes a second."""
        await self._delete(
            lambda: self._core.delete_namespaced_pod(name, self._namespace, body=_DELETE, _request_timeout=_TIMEOUT)
        )

    async def execute(self, pod: str, container: str, argv: tuple[str, ...]) -> WebSocketSession:
        """Start a program in a running container."""
        await self._connect()
        configuration = self._client.configuration
        query: list[tuple[str, str]] = [("container", container), *(("command", word) for word in argv)]
        query += [(stream, "true") for stream in ("stdin", "stdout", "stderr")]
        path = f"/api/v1/namespaces/{self._namespace}/pods/{pod}/exec?{urlencode(query)}"
        try:
            # The token of a pod's service account is read again when it is renewed.
            token = await asyncio.to_thread(configuration.get_api_key_with_prefix, "BearerToken", "authorization")
            connection = await websockets.asyncio.client.connect(
                configuration.host.replace("http", "ws", 1) + path,
                ssl=_tls(configuration) if configuration.host.startswith("https") else None,
                subprotocols=[PROTOCOL],
                additional_headers={"Authorization": token} if token else None,
                compression=None,
                max_size=_MESSAGE_BYTES,
                max_queue=_QUEUED_MESSAGES,
                open_timeout=_TIMEOUT[1],
                close_timeout=1.0,
                ping_interval=None,
                proxy=None,
            )
        except (OSError, WebSocketException, TimeoutError) as error:
            raise ClusterError(f"exec in a pod failed: {type(error).__name__}") from error
        return WebSocketSession(connection)

    async def create_lease(self, name: str) -> LeaseState:
        """Create a lease; one of the same name is deleted before."""
        lease = {
            "metadata": {"name": name, "labels": _LEASE_LABELS},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 60, "renewTime": _now()},
        }

        def create() -> Any:
            return self._coordination.create_namespaced_lease(self._namespace, lease, _request_timeout=_TIMEOUT)

        try:
            return _lease_state(await self._ask(create))
        except ClusterError as error:
            if error.status != _CONFLICT:
                raise
        await self.delete_lease(name)
        return _lease_state(await self._ask(create))

    async def renew_lease(self, name: str) -> bool:
        """Renew a lease. Returns False if it is gone."""
        change = {"spec": {"renewTime": _now()}}
        try:
            await self._ask(
                lambda: self._coordination.patch_namespaced_lease(
                    name, self._namespace, change, _request_timeout=_TIMEOUT
                )
            )
        except ClusterError as error:
            if error.status == _GONE:
                return False
            raise
        return True

    async def list_leases(self) -> list[LeaseState]:
        """Return the leases of executors."""
        found = await self._ask(
            lambda: self._coordination.list_namespaced_lease(
                self._namespace, label_selector=_LEASE_SELECTOR, _request_timeout=_TIMEOUT
            )
        )
        return [_lease_state(lease) for lease in found.items]

    async def delete_lease(self, name: str) -> None:
        """Delete a lease, with all pods that it owns."""
        await self._delete(
            lambda: self._coordination.delete_namespaced_lease(
                name, self._namespace, body={"propagationPolicy": "Background"}, _request_timeout=_TIMEOUT
            )
        )

    async def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request that the client has no method for, and return the answer."""
        headers = {"Accept": "application/json", "Content-Type": "application/json"}

        def send() -> dict[str, Any]:
            call = self._client.param_serialize(
                method, path, header_params=headers, body=body, auth_settings=["BearerToken"]
            )
            response = self._client.call_api(*call, _request_timeout=_TIMEOUT)
            response.read()
            # Raises ApiException for an answer that is an error.
            self._client.response_deserialize(response, {})
            return dict(json.loads(response.data))

        return await self._ask(send)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await asyncio.to_thread(self._client.close)

    async def _delete(self, request: Callable[[], Any]) -> None:
        try:
            await self._ask(request)
        except ClusterError as error:
            if error.status != _GONE:
                raise

    async def _ask(self, request: Callable[[], T]) -> T:
        """Run a request of the client in a thread. Raises ClusterError."""
        await self._connect()

        def ask() -> T:
            from kubernetes.client import ApiException
            from urllib3.exceptions import HTTPError

            try:
                return request()
            except ApiException as error:
                reason = f"the API server answered {error.status} {error.reason}"
                raise ClusterError(reason, int(error.status or 0)) from error
            except (HTTPError, OSError, ValueError) as error:
                raise ClusterError(f"the API server cannot be asked: {type(error).__name__}") from error

        return await asyncio.to_thread(ask)

    async def _connect(self) -> None:
        async with self._connecting:
            if self._client is None:
                self._client = await asyncio.to_thread(self._new_client)
                from kubernetes import client

                self._core, self._coordination = client.CoreV1Api(self._client), client.CoordinationV1Api(self._client)

    def _new_client(self) -> Any:
        # Only executors that use pods load it: it takes a second and tens of megabytes.
        from kubernetes import client, config

        load_file: Any = config.new_client_from_config
        load_account: Any = config.load_incluster_config
        try:
            if self._kubeconfig is not None:
                return load_file(str(self._kubeconfig))
            configuration = client.Configuration()
            load_account(configuration)
        except (config.ConfigException, OSError) as error:
            raise ClusterError(f"no credentials of a cluster: {error}") from error
        return client.ApiClient(configuration)


def _tls(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _owner_kind(pod: Any) -> str:
    owners = pod.metadata.owner_references or []
    return owners[0].kind if owners else ""


def _pod_state(pod: Any) -> PodState:
    owners = pod.metadata.owner_references or []
    statuses = pod.status.container_statuses or []
    return PodState(
        name=pod.metadata.name,
        owner=owners[0].uid if owners else "",
        phase=pod.status.phase or "",
        containers={status.name: _container_state(status) for status in statuses},
    )


def _container_state(status: Any) -> ContainerState:
    state = status.state
    return ContainerState(
        running=state.running is not None,
        ended="" if state.terminated is None else state.terminated.reason or "Unknown",
        waiting="" if state.waiting is None else state.waiting.reason or "",
    )


def _lease_state(lease: Any) -> LeaseState:
    return LeaseState(lease.metadata.name, lease.metadata.uid, str(lease.spec.renew_time))
