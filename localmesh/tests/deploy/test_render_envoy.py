"""Envoy's template, filled in for a pod."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from localmesh.deploy.render_envoy import EdgeSettings, render_envoy


def test_upstreams_are_the_headless_services_of_both_namespaces(repository: Path) -> None:
    text = (repository / "deploy" / "envoy" / "envoy.yaml").read_text()
    document = yaml.safe_load(render_envoy(text, EdgeSettings(node_id="envoy-1")))
    clusters = {each["name"]: each for each in document["static_resources"]["clusters"]}
    endpoint = clusters["executor"]["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
    address = endpoint["address"]["socket_address"]
    assert (clusters["executor"]["type"], address["address"], address["port_value"]) == (
        "STRICT_DNS",
        "executor.toolmesh-executor",
        8443,
    )
    assert document["node"]["id"] == "envoy-1"


def test_a_collector_without_a_port_is_refused() -> None:
    with pytest.raises(ValueError):
        render_envoy("", EdgeSettings(node_id="envoy-1", otlp_endpoint="http://collector"))
