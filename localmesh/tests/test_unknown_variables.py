from __future__ import annotations

import pytest

from localmesh.settings import VARIABLES
from localmesh.unknown_variables import find_unknown_variables


def test_a_mistyped_name_is_a_stranger() -> None:
    assert find_unknown_variables(["TOOLMESH_TOOL_PACK", "HOME", "TOOLMESH_DRAIN", "TOOLMESH_STATE"]) == [
        "TOOLMESH_DRAIN",
        "TOOLMESH_TOOL_PACK",
    ]


@pytest.mark.parametrize(
    "names",
    [
        VARIABLES,
        ["TOOLMESH_STATE", "TOOLMESH_TOKEN", "TOOLMESH_KEY_SECRET", "TOOLMESH_DEBUG"],
        ["TOOLMESH_LISTEN", "TOOLMESH_DECISION_TTL", "TOOLMESH_SEALING_KEYS"],
        [
            "TOOLMESH_PORT",
            "TOOLMESH_SERVICE_HOST",
            "TOOLMESH_EXECUTOR_SERVICE_PORT_GRPC",
            "TOOLMESH_EXECUTOR_PORT",
            "TOOLMESH_EXECUTOR_PORT_8443_TCP",
            "TOOLMESH_EXECUTOR_PORT_8443_TCP_ADDR",
        ],
    ],
)
def test_a_known_variable_is_not_reported(names: list[str]) -> None:
    assert find_unknown_variables(names) == []
