"""Deployments behind the client of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from localmesh.deploy.layout import Namespaces
from localmesh.tests.upgrade.conftest import FakeCluster, template
from localmesh.upgrade.deployments import KubernetesDeployments, with_image


@pytest.fixture
def deployments(client: Any) -> KubernetesDeployments:
    return KubernetesDeployments(client, Namespaces())


def test_a_template_is_replaced_and_not_merged(cluster: FakeCluster, deployments: KubernetesDeployments) -> None:
    assert deployments.read_template("executor") == template("executor:1")
    deployments.replace_template("executor", {"spec": {"containers": [{"image": "executor:2"}]}})
    assert deployments.read_template("executor") == {"spec": {"containers": [{"image": "executor:2"}]}}


def test_a_rollout_is_complete_when_its_pods_alone_are_there(
    cluster: FakeCluster, deployments: KubernetesDeployments
) -> None:
    assert deployments.read_rollout("authz").complete
    cluster.unready = {"authz:1"}
    assert not deployments.read_rollout("authz").complete


def test_a_part_is_paused_and_goes_on(cluster: FakeCluster, deployments: KubernetesDeployments) -> None:
    deployments.set_paused("authz", paused=True)
    assert deployments.is_paused("authz")
    deployments.set_paused("authz", paused=False)
    assert not deployments.is_paused("authz")


def test_another_image_is_that_of_the_part_and_of_no_other_container() -> None:
    changed = with_image(template("authz:1"), "authz:2")
    images = [each["image"] for kind in ("initContainers", "containers") for each in changed["spec"][kind]]
    assert images == ["authz:2", "authz:2", "other:1"]
