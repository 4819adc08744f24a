"""Which files of scenarios run in one worker, one after another, because they share a mesh: a mesh costs more than most
files that use it."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

_SCENARIOS = "tests/scenarios/"
_KILLED, _TWO_EXECUTORS, _VIEWS = "a mesh that tests kill", "a mesh with two executors", "a mesh with views"
# What each file of scenarios needs, unless the mesh that all of them share is enough for it.
_NEEDS = {
    "calls/test_survival.py": _KILLED,
    "evidence/test_outbox.py": _KILLED,
    "catalog/test_http_tools.py": _TWO_EXECUTORS,
    "catalog/test_pack_development.py": _TWO_EXECUTORS,
    "catalog/test_upstreams.py": _VIEWS,
    "edge/test_subscriptions.py": _VIEWS,
} | {
    file: file
    for file in (
        "calls/test_every_execution_code.py",
        "edge/test_console.py",
        "evidence/test_auditor_walk.py",
        "evidence/test_no_secret_leaks.py",
        "identity/test_outside_issuers.py",
        "identity/test_revocation.py",
        "local/test_documented_commands.py",
        "policy/test_approvals.py",
    )
}


class SharedMeshScheduling(LoadFileScheduling):  # type: ignore[misc]
    """Gives a worker all tests of a file, or of the files that share a mesh."""

    def _split_scope(self, nodeid: str) -> Any:
        file = super()._split_scope(nodeid)
        return _NEEDS.get(file.removeprefix(_SCENARIOS), _SCENARIOS) if file.startswith(_SCENARIOS) else file
