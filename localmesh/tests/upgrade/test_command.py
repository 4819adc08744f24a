"""`toolmesh deploy upgrade`: what it does to a cluster, and its exit status."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from localmesh.commands import register
from localmesh.tests.upgrade.conftest import PARTS, FakeCluster


def upgrade(*words: str) -> Any:
    app = typer.Typer()
    register(app)
    return CliRunner().invoke(app, ["deploy", "upgrade", "--window=0.05", *words])


def test_images_are_rolled_out_in_the_order_of_an_upgrade(cluster: FakeCluster) -> None:
    ran = upgrade("--image=gateway=gateway:2", "--image=audit=audit:2")
    assert ran.exit_code == 0
    assert cluster.history == [("audit", "audit:2"), ("gateway", "gateway:2")]


def test_a_build_that_fails_calls_is_undone(cluster: FakeCluster) -> None:
    cluster.failing = {"audit:2"}
    ran = upgrade("--image=gateway=gateway:2", "--image=audit=audit:2")
    assert ran.exit_code == 1
    assert cluster.history == [("audit", "audit:2"), ("audit", "audit:1")]
    assert upgrade("--image=audit=audit:2", "--error-rate=0.9").exit_code == 0


def test_an_image_that_does_not_start_is_undone(cluster: FakeCluster) -> None:
    cluster.unready = {"executor:2"}
    ran = upgrade("--image=executor=executor:2", "--rollout=1")
    assert (ran.exit_code, cluster.image("executor")) == (1, "executor:1")


def test_without_metrics_nothing_is_changed(cluster: FakeCluster) -> None:
    cluster.unreachable = True
    ran = upgrade("--image=audit=audit:2")
    assert (ran.exit_code, cluster.history) == (1, [])


@pytest.mark.parametrize(
    "words", [(), ("--image=audit",), ("--image=postgres=postgres:2",), ("--image=a=b", "--overlay=.")]
)
def test_what_names_no_upgrade_is_wrong_usage(cluster: FakeCluster, words: tuple[str, ...]) -> None:
    assert upgrade(*words).exit_code == 2
    assert [part for part in PARTS if cluster.image(part) != f"{part}:1"] == []
