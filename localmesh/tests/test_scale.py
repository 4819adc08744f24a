from __future__ import annotations

import pytest

from localmesh.ports import USUAL_PORTS, replica_names, usual_ports
from localmesh.scale import parse_scale


def test_each_replica_has_ports_of_its_own() -> None:
    ports = usual_ports(parse_scale(["executor=3", "gateway=1"]))
    assert ports.keys() - USUAL_PORTS.keys() == {"executor-2", "executor-2-ops", "executor-3", "executor-3-ops"}
    assert len(set(ports.values())) == len(ports)
    assert replica_names(ports, "executor") == ["executor", "executor-2", "executor-3"]
    assert replica_names(ports, "edge") == ["edge"]


@pytest.mark.parametrize("text", ["executor", "executor=0", "executor=9", "executor=two", "postgres=2", "=2", "edge=2"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="executor"):
        parse_scale([text])
