"""Gives every test in the tree the same fixtures, and names what fails at once."""

import os
from typing import Any

import pytest

# gRPC restarts its threads in every forked child, and a child with threads cannot enter a user namespace, as
# PostgreSQL's does.
# The runner of a mesh never loads gRPC; this process does.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

pytest_plugins = ["tests.fixtures"]


class FailureLines:
    """Writes a line for each failure as it happens: a run that is ended by force prints no summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome in ("failed", "rerun"):
            terminal: Any = self._config.pluginmanager.get_plugin("terminalreporter")
            terminal.write_line(f" {report.outcome} after {report.duration:.0f} s: {report.nodeid} ({report.when})")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let files share a mesh; `--dist loadfile` alone gives each worker one."""
    from tests.harness.shared_meshes import SharedMeshScheduling

    return SharedMeshScheduling(config, log)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailureLines(config))
