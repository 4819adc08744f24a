"""Asks a pod over HTTP through the API server, so that nothing needs to be forwarded."""

from __future__ import annotations

from typing import Any

_SECONDS = 10


def get_from_pod(core: Any, namespace: str, pod: str, port: int, path: str) -> str:
    """Return the body of an answer. `core` is a CoreV1Api. Raises ApiException."""
    proxy = core.connect_get_namespaced_pod_proxy_with_path
    response: Any = proxy(f"{pod}:{port}", namespace, path, _preload_content=False, _request_timeout=_SECONDS)
    text: str = response.data.decode()
    return text


def is_ready(pod: Any) -> bool:
    """Return whether a pod of the API server is ready."""
    return any(item.type == "Ready" and item.status == "True" for item in pod.status.conditions or ())
