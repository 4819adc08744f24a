"""`toolmesh deploy doctor`. Not among the commands of the jobs in a cluster: their image has no client library."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer
from toolmesh_sdk.cli.commands.doctor import report

from localmesh.deploy.commands import ExecutorNamespaceOption, NamespaceOption
from localmesh.deploy.layout import Namespaces
from localmesh.options import JsonOption


def doctor(
    namespace: NamespaceOption = "toolmesh",
    executor_namespace: ExecutorNamespaceOption = "toolmesh-executor",
    nodes_namespace: Annotated[str, typer.Option(help="Namespace of what runs on every node.")] = "toolmesh-nodes",
    context: Annotated[str, typer.Option(help="Context of the kubeconfig; default: the current one.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Check the mesh of a cluster.

    Reads certificates, jobs, deployments, pods and autoscalers, and asks the services for lag and circuits. Prints
    advice for every problem; exits with 1 if a check fails.

    \b
    Examples:
      toolmesh deploy doctor
      toolmesh deploy doctor --context production --json
    """
    # Load cryptography and HTTP, which no other command of a terminal needs.
    from toolmesh_sdk.cli.views.doctor_checks import FAIL, Check

    from localmesh.cluster_doctor.cluster_checks import check_cluster
    from localmesh.cluster_doctor.cluster_view import read_cluster
    from localmesh.deploy.api_failures import ClusterUnreachableError

    try:
        view = read_cluster((namespace, executor_namespace, nodes_namespace), context)
    except ClusterUnreachableError as error:
        report([Check("cluster", FAIL, str(error), "Try `kubectl get pods` with the same context.")], as_json=as_json)
    namespaces = Namespaces(namespace, executor_namespace)
    report(list(check_cluster(view, namespaces, datetime.now(UTC))), as_json=as_json)
