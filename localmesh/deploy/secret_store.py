"""Kubernetes secrets, behind a port: read one, create one that is missing, replace one."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Protocol

OPAQUE = "Opaque"
TLS = "kubernetes.io/tls"
LABELS = {"app.kubernetes.io/part-of": "toolmesh", "app.kubernetes.io/managed-by": "toolmesh-deploy"}
_NOT_FOUND, _CONFLICT = 404, 409


class SecretStore(Protocol):
    """The secrets of a cluster."""

    def read(self, namespace: str, name: str) -> dict[str, bytes] | None:
        """Return a secret's content; None if there is none."""
        ...

    def create(self, namespace: str, name: str, content: Mapping[str, bytes], kind: str = OPAQUE) -> None:
        """Create a secret. One that exists stays as it is."""
        ...

    def replace(self, namespace: str, name: str, content: Mapping[str, bytes], kind: str = OPAQUE) -> None:
        """Replace a secret, or create it."""
        ...


class KubernetesSecrets:
    """The secrets of the cluster that this pod runs in, or that a context of the kubeconfig names."""

    def __init__(self, context: str = "") -> None:
        import kubernetes  # most commands do without, and it takes a second to load

        # The types that it states are not those that its own calls keep.
        config: Any = kubernetes.config
        models: Any = kubernetes.client
        try:
            config.load_incluster_config()
        except config.ConfigException:
            config.load_kube_config(context=context or None)
        self._api, self._models, self._error = models.CoreV1Api(), models, models.ApiException

    def read(self, namespace: str, name: str) -> dict[str, bytes] | None:
        try:
            secret = self._api.read_namespaced_secret(name, namespace)
        except self._error as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        return {key: base64.b64decode(value) for key, value in (secret.data or {}).items()}

    def create(self, namespace: str, name: str, content: Mapping[str, bytes], kind: str = OPAQUE) -> None:
        try:
            self._api.create_namespaced_secret(namespace, self._secret(name, content, kind))
        except self._error as error:
            if error.status != _CONFLICT:
                raise

    def replace(self, namespace: str, name: str, content: Mapping[str, bytes], kind: str = OPAQUE) -> None:
        if self.read(namespace, name) is None:
            self.create(namespace, name, content, kind)
        else:
            self._api.replace_namespaced_secret(name, namespace, self._secret(name, content, kind))

    def _secret(self, name: str, content: Mapping[str, bytes], kind: str) -> object:
        encoded = {key: base64.b64encode(value).decode() for key, value in content.items()}
        return self._models.V1Secret(
            metadata=self._models.V1ObjectMeta(name=name, labels=LABELS), type=kind, data=encoded
        )
