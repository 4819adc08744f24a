"""Reads the metrics of Envoy's and the executor's pods through the API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localmesh.deploy.layout import EXECUTOR, Namespaces
from localmesh.deploy.pod_proxy import get_from_pod, is_ready
from localmesh.upgrade.call_counts import CallCounts, count_calls

# The port of each part's metrics and their path.
SOURCES = {"envoy": (9901, "stats/prometheus"), EXECUTOR: (9090, "metrics")}


class PodMetrics:
    """The counts of the pods that are ready."""

    def __init__(self, client: Any, namespaces: Namespaces) -> None:
        """`client` is an ApiClient."""
        import kubernetes  # most commands do without, and it takes a second to load

        # The types that it states are not those that its calls with these options return.
        self._api: Any = kubernetes.client.CoreV1Api(client)
        self._namespaces = namespaces
        self._failure: Any = kubernetes.client.ApiException

    def read(self) -> Mapping[str, CallCounts]:
        """Return the counts by pod. A pod that cannot be asked is left out."""
        found = {}
        for part, (port, path) in SOURCES.items():
            namespace = self._namespaces.of(part)
            for pod in self._ready_pods(namespace, part):
                try:
                    found[pod] = count_calls(get_from_pod(self._api, namespace, pod, port, path))
                except self._failure:
                    continue  # it has just ended
        return found

    def _ready_pods(self, namespace: str, part: str) -> list[str]:
        selector = f"app.kubernetes.io/name={part}"
        listed = self._api.list_namespaced_pod(namespace, label_selector=selector, _request_timeout=10).items
        return [pod.metadata.name for pod in listed if is_ready(pod)]
