"""Hosts on which no sandbox can be started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from services.executor.adapters.sandbox import host_checks
from services.executor.adapters.sandbox.bubblewrap import environment as bubblewrap
from services.executor.adapters.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from services.executor.adapters.sandbox.gvisor import environment as gvisor
from services.executor.adapters.sandbox.gvisor.sandbox import GvisorSandbox
from services.executor.adapters.sandbox.host_checks import INSIDE_GVISOR, lacks_rights_of_root, runs_inside_gvisor
from services.executor.tests.sandboxes import MAKERS, attempt, missing, python

DETECT = """
import sys
sys.path.insert(0, '/checked')
import host_checks
print(host_checks.runs_inside_gvisor())
"""


@pytest.mark.parametrize("kind", ["bubblewrap", "gvisor"])
async def test_the_kernel_of_gvisor_is_recognized_from_inside(kind: str) -> None:
    if why := await missing(kind):
        pytest.skip(f"{kind}: {why}")
    sandbox = MAKERS[kind]()
    checked = str(Path(host_checks.__file__).parent)
    ran = await attempt(sandbox, python(DETECT, readable=((checked, "/checked"),)))
    await sandbox.close()
    assert ran.output.decode().strip() == str(kind == "gvisor"), ran.report


def test_older_releases_of_gvisor_are_recognized_too() -> None:
    assert runs_inside_gvisor("4.4.0", "#1 SMP Sun Jan 10 15:06:54 PST 2016")
    assert not runs_inside_gvisor("4.19.0", "#1 SMP Debian 4.19.0-1")


@pytest.mark.parametrize(("module", "kind"), [(bubblewrap, BubblewrapSandbox), (gvisor, GvisorSandbox)])
async def test_inside_gvisor_every_sandbox_says_so(
    monkeypatch: pytest.MonkeyPatch, module: object, kind: type[BubblewrapSandbox | GvisorSandbox]
) -> None:
    monkeypatch.setattr(module, "runs_inside_gvisor", lambda: True)
    sandbox = kind("test")
    assert sandbox.unavailable_reason() == INSIDE_GVISOR
    await sandbox.close()


@pytest.mark.parametrize(
    ("uid", "capabilities", "users", "lacking"),
    [
        (0, "000001ffffffffff", "0 0 4294967295", False),
        (0, "00000000a80425fb", "0 0 4294967295", True),
        (0, "000001ffffffffff", "0 1000 1", True),
        (10001, "0000000000000000", "0 0 4294967295", False),
    ],
    ids=["root", "root of a container", "root of a user namespace", "a user"],
)
def test_root_without_its_rights_is_recognized(
    tmp_path: Path, uid: int, capabilities: str, users: str, lacking: bool
) -> None:
    (tmp_path / "status").write_text(f"Name:\tx\nCapEff:\t{capabilities}\n")
    (tmp_path / "uid_map").write_text(f"  {users}\n")
    assert lacks_rights_of_root(uid, tmp_path) is lacking


AS_ROOT_OF_A_NAMESPACE = """
import asyncio, ctypes, os
from services.executor.adapters.sandbox.host_checks import ROOT_WITHOUT_RIGHTS
from services.executor.tests.sandboxes import MAKERS, attempt, python

user, group = os.geteuid(), os.getegid()
assert ctypes.CDLL(None).unshare(0x10000000) == 0
for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)
assert os.geteuid() == 0

async def main():
    for kind in ("bubblewrap", "gvisor"):
        sandbox = MAKERS[kind]()
        if reason := sandbox.unavailable_reason():
            assert ROOT_WITHOUT_RIGHTS in reason or "runsc" in reason, reason
        else:
            assert (await attempt(sandbox, python("print(1)"))).output == b"1\\n"
        await sandbox.close()
asyncio.run(main())
"""


async def test_root_of_a_user_namespace_runs_sandboxes_or_says_what_to_change() -> None:
    if why := await missing("bubblewrap"):
        pytest.skip(why)
    command = [sys.executable, "-c", AS_ROOT_OF_A_NAMESPACE]
    subprocess.run(command, check=True, timeout=300)  # noqa: ASYNC221
