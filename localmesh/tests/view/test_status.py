"""The status of a mesh as a table."""

from __future__ import annotations

from typing import Any

from localmesh.view.status import table

PART: dict[str, Any] = {"address": "a:1", "ops": None, "pid": 2, "ready": True, "rss_bytes": 1, "restarts": 0}


def test_what_a_part_says_of_itself_follows_the_table() -> None:
    services = [
        PART | {"name": "postgres", "memory_kind": "pss", "detail": []},
        PART
        | {"name": "executor", "memory_kind": "rss", "detail": ["process/bubblewrap: memory: groups [of its own]"]},
    ]
    document = {
        "services": services,
        "ready_seconds": 1.0,
        "gateway": {"url": "http://edge"},
        "rss_bytes": 2,
        "runner_pid": 1,
        "runner_rss_bytes": 1,
    }
    assert table(document).splitlines()[-1] == "executor: process/bubblewrap: memory: groups [of its own]"
