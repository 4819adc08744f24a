"""`toolmesh deploy upgrade`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localmesh.deploy.commands import ExecutorNamespaceOption, NamespaceOption
from localmesh.deploy.layout import Namespaces
from localmesh.exit_codes import FAILED

if TYPE_CHECKING:
    from localmesh.upgrade.deployments import KubernetesDeployments, Template


def upgrade(
    image: Annotated[
        list[str] | None, typer.Option("--image", metavar="PART=IMAGE", help="A part and its image; repeatable.")
    ] = None,
    overlay: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Folder to apply; needs kubectl.")
    ] = None,
    error_rate: Annotated[float, typer.Option(min=0, max=1, help="Undo if more of the calls fail.")] = 0.01,
    window: Annotated[float, typer.Option(min=0, help="Seconds to watch calls after each part.")] = 60.0,
    rollout: Annotated[float, typer.Option(min=1, help="Seconds that a part may take to be ready.")] = 600.0,
    namespace: NamespaceOption = "toolmesh",
    executor_namespace: ExecutorNamespaceOption = "toolmesh-executor",
    context: Annotated[str, typer.Option(help="Context of the kubeconfig; default: the current one.")] = "",
) -> None:
    """Roll out part by part; undo one that fails calls.

    In the order audit, authz, registry, approval, executor, gateway, envoy. A part that does not become ready, or while
    which more calls fail than allowed, gets its former pods back, and those after it stay as they are: exit status 1.
    Calls are counted at Envoy and the executor; what callers do wrong is no failure.

    \b
    Examples:
      toolmesh deploy upgrade --overlay deploy/k8s/overlays/production
      toolmesh deploy upgrade --image authz=registry.example/toolmesh/authz:0.2.0 --window 300
    """
    if bool(image) == bool(overlay):
        raise typer.BadParameter("give either --image or --overlay")
    from localmesh.deploy.api_failures import ClusterUnreachableError, explain_failures
    from localmesh.upgrade.overlay import OverlayError, stage_overlay
    from localmesh.upgrade.progressive import ORDER, UpgradeLimits

    namespaces, images = Namespaces(namespace, executor_namespace), _parse_images(image or [])
    try:
        with explain_failures():
            client, deployments = _connect(namespaces, context)
            if overlay:
                templates = stage_overlay(deployments, ORDER, overlay, context)
            else:
                templates = _with_images(deployments, images)
            _run(client, namespaces, deployments, templates, UpgradeLimits(error_rate, window, rollout))
    except (ClusterUnreachableError, OverlayError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(FAILED) from None


def _run(client: Any, namespaces: Namespaces, deployments: Any, templates: dict[str, Template], limits: Any) -> None:
    from localmesh.upgrade.pod_metrics import PodMetrics
    from localmesh.upgrade.progressive import ProgressiveUpgrade

    meter = PodMetrics(client, namespaces)
    if not meter.read():
        typer.echo("no metrics of Envoy or the executor can be read, so nothing was changed", err=True)
        raise typer.Exit(FAILED)
    stopped = ProgressiveUpgrade(deployments, meter, limits, typer.echo).run(templates)
    if stopped is not None:
        state = "serves with its former pods" if stopped.undone else "is NOT ready with its former pods"
        typer.echo(f"stopped: {stopped.part} {state}; parts after it were not changed", err=True)
        raise typer.Exit(FAILED)
    typer.echo("done")


def _connect(namespaces: Namespaces, context: str) -> tuple[Any, KubernetesDeployments]:
    import kubernetes

    from localmesh.upgrade.deployments import KubernetesDeployments

    config: Any = kubernetes.config
    config.load_kube_config(context=context or None)
    settings = kubernetes.client.Configuration.get_default_copy()
    # Paths of metrics have a slash.
    settings.safe_chars_for_path_param = "/"
    client = kubernetes.client.ApiClient(settings)
    return client, KubernetesDeployments(client, namespaces)


def _with_images(deployments: KubernetesDeployments, images: dict[str, str]) -> dict[str, Template]:
    from localmesh.upgrade.deployments import with_image

    return {part: with_image(deployments.read_template(part), image) for part, image in images.items()}


def _parse_images(texts: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    from localmesh.upgrade.progressive import ORDER

    if wrong := [part for part, _, image in pairs if part not in ORDER or not image]:
        raise typer.BadParameter(f"{wrong[0]!r} is not a part with an image; parts are {', '.join(ORDER)}")
    return {part: image for part, _, image in pairs}
