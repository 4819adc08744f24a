"""Answers of pods through the API server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from localmesh.deploy.pod_proxy import get_from_pod, is_ready


def test_a_pod_is_named_with_its_port() -> None:
    asked: list[tuple[str, str, str]] = []

    def proxy(pod: str, namespace: str, path: str, **_: Any) -> Any:
        asked.append((pod, namespace, path))
        return SimpleNamespace(data=b"answer")

    core = SimpleNamespace(connect_get_namespaced_pod_proxy_with_path=proxy)
    assert get_from_pod(core, "toolmesh", "audit-1", 9090, "metrics") == "answer"
    assert asked == [("audit-1:9090", "toolmesh", "metrics")]


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [([("Ready", "True")], True), ([("Ready", "False"), ("Other", "True")], False), ([], False)],
)
def test_only_a_ready_pod_is_ready(conditions: list[tuple[str, str]], ready: bool) -> None:
    listed = [SimpleNamespace(type=kind, status=status) for kind, status in conditions]
    assert is_ready(SimpleNamespace(status=SimpleNamespace(conditions=listed))) is ready
