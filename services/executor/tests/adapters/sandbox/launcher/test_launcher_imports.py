"""The launcher and the gVisor entry process load only the standard library and their own modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SANDBOX = "services.executor.adapters.sandbox"
REPOSITORY = Path(__file__).parents[6]
LOADED = """
import sys
sys.path.insert(0, sys.argv[1])
__import__(sys.argv[2])
print(*(name for name in sys.modules if name.partition(".")[0] not in {*sys.stdlib_module_names, "__main__"}))
"""


@pytest.mark.parametrize(
    ("entry_point", "own"),
    [
        (f"{SANDBOX}.launcher.main", (f"{SANDBOX}.launcher",)),
        (f"{SANDBOX}.launcher.scratch_mounts", (f"{SANDBOX}.launcher",)),
        (f"{SANDBOX}.gvisor.enter", (f"{SANDBOX}.gvisor.enter", f"{SANDBOX}.launcher.syscalls")),
    ],
)
def test_a_sandbox_entry_point_loads_only_its_own_modules(entry_point: str, own: tuple[str, ...]) -> None:
    command = [sys.executable, "-I", "-S", "-c", LOADED, str(REPOSITORY), entry_point]
    loaded = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
    assert entry_point in loaded
    # A module also loads the packages that it lies in.
    packages = [name for name in loaded if any(module.startswith(f"{name}.") for module in own)]
    assert [name for name in loaded if not name.startswith(own) and name not in packages] == []
