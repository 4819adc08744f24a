"""The deployments of a mesh, behind a port: read a pod template, change it, follow a rollout."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from typing import Any, Protocol

from localmesh.deploy.layout import Namespaces

Template = dict[str, Any]
# As JSON: the client's models would drop fields that they do not know.
_REQUEST: Any = {"_request_timeout": 10, "_preload_content": False}


@dataclass(frozen=True)
class RolloutState:
    """How far a rollout is."""

    complete: bool
    detail: str
    """For a person, such as `1 of 2 updated`."""


class Deployments(Protocol):
    """The deployments of a mesh, by the names of its parts."""

    def read_template(self, part: str) -> Template:
        """Return the template of the part's pods."""
        ...

    def replace_template(self, part: str, template: Template) -> None:
        """Replace the template of the part's pods, which begins a rollout."""
        ...

    def read_rollout(self, part: str) -> RolloutState:
        """Return how far the newest rollout of a part is."""
        ...


class KubernetesDeployments:
    """The deployments of the cluster that a kubeconfig names."""

    def __init__(self, client: Any, namespaces: Namespaces) -> None:
        """`client` is an ApiClient."""
        import kubernetes  # most commands do without, and it takes a second to load

        self._api, self._namespaces = kubernetes.client.AppsV1Api(client), namespaces

    def read_template(self, part: str) -> Template:
        template: Template = self._read(part)["spec"]["template"]
        return template

    def replace_template(self, part: str, template: Template) -> None:
        # Not merged: what the other template has and this one lacks must go.
        self._patch(part, [{"op": "replace", "path": "/spec/template", "value": template}])

    def is_paused(self, part: str) -> bool:
        """Return whether rollouts of a part are held back."""
        return bool(self._read(part)["spec"].get("paused"))

    def set_paused(self, part: str, *, paused: bool) -> None:
        """Hold rollouts of a part back, or let them go on."""
        self._patch(part, {"spec": {"paused": paused}})

    def read_rollout(self, part: str) -> RolloutState:
        deployment = self._read(part)
        status, wanted = deployment.get("status", {}), deployment["spec"].get("replicas", 1)
        if status.get("observedGeneration", 0) < deployment["metadata"]["generation"]:
            return RolloutState(complete=False, detail="not begun")
        updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
        complete = updated == wanted == available == status.get("replicas", 0)
        return RolloutState(complete, f"{updated} of {wanted} updated, {available} available")

    def _read(self, part: str) -> dict[str, Any]:
        response: Any = self._api.read_namespaced_deployment(part, self._namespaces.of(part), **_REQUEST)
        deployment: dict[str, Any] = json.loads(response.data)
        return deployment

    def _patch(self, part: str, change: Any) -> None:
        self._api.patch_namespaced_deployment(part, self._namespaces.of(part), change, **_REQUEST)


def with_image(template: Template, image: str) -> Template:
    """Return a template in which the part's own image is another one, in init containers too."""
    changed = copy.deepcopy(template)
    former = changed["spec"]["containers"][0]["image"]
    for container in (*changed["spec"].get("initContainers", ()), *changed["spec"]["containers"]):
        if container["image"] == former:
            container["image"] = image
    return changed
