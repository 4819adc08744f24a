"""Composes the sandbox of pods, where the deployment names a namespace for them."""

from __future__ import annotations

from libs.common.runtime.process import instance_id
from libs.common.telemetry.log import Log
from services.executor.adapters.sandbox.pods.kubernetes_api import KubernetesPodApi
from services.executor.adapters.sandbox.pods.pod_api import PodApi
from services.executor.adapters.sandbox.pods.pod_manifest import PodConfig
from services.executor.adapters.sandbox.pods.sandbox import PodSandbox
from services.executor.adapters.sandbox.pods.sandbox_claims import ClaimPodApi
from services.executor.adapters.sandbox.rootfs import interpreter_path
from services.executor.config import Settings


def build_pods(settings: Settings, log: Log) -> PodSandbox | None:
    """Build the sandbox of pods; None without a namespace for them."""
    if not settings.pod_namespace:
        return None
    config = PodConfig(
        settings.pod_namespace,
        settings.pod_image,
        settings.pod_python or interpreter_path(),
        settings.pod_runtime_class,
    )
    return PodSandbox(_pod_api(settings), config, instance_id(settings), log)


def _pod_api(settings: Settings) -> PodApi:
    api = KubernetesPodApi(settings.pod_namespace, settings.pod_kubeconfig)
    if settings.pod_claims == "off":
        return api
    return ClaimPodApi(api, settings.pod_namespace, required=settings.pod_claims == "required")
