"""Applications that are installed beside what a tool needs cannot be seen by it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from services.executor.adapters.sandbox.rootfs import build_rootfs, system_parts
from services.executor.tests.sandboxes import MAKERS, missing

INSTALL = """
import asyncio, os, sys
from pathlib import Path
from services.executor.adapters.sandbox.launcher import syscalls
from services.executor.tests.sandboxes import MAKERS, attempt, python

CANARY = "toolmesh_canary"
version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
# Mounts that only this process and its sandboxes see, so that the machine itself stays as it is.
syscalls.own_mount_namespace()
places = {
    "/opt": ["app"],
    "/srv": ["app"],
    "/usr/share": ["app", f"{version}/dist-packages"],
    "/usr/local": ["lib", f"lib/{version}/dist-packages", f"lib/{version}/site-packages", "share/app", "bin"],
    "/usr/lib/python3": ["dist-packages"],
    "/usr/lib/node_modules": ["app"],
    f"{sys.base_prefix}/lib/{version}/site-packages": ["app"],
    f"{sys.base_prefix}/lib/{version}/dist-packages": ["app"],
    f"{sys.base_prefix}/share": ["app"],
}
installed = 0
# What this process itself needs cannot be hidden from it: the interpreter, and this tree, wherever it lies.
needed = (sys.base_prefix, sys.prefix, os.__file__, syscalls.__file__)
for place, folders in places.items():
    if not os.path.isdir(place) or any(path.startswith(place) for path in needed):
        continue
    syscalls.mount_bounded_tmpfs(place, 1 << 20, 100)
    os.chmod(place, 0o755)
    for folder in folders:
        os.makedirs(f"{place}/{folder}", exist_ok=True)
        Path(f"{place}/{folder}/{CANARY}.py").write_text("key = 1")
        installed += 1
assert installed >= 5, installed

async def main():
    sandbox = MAKERS[sys.argv[1]]()
    seek = '''
import os, sys
for folder, folders, files in os.walk('/'):
    if folder == '/': folders[:] = [name for name in folders if name != 'proc']
    print(*(f'{folder}/{name}' for name in files if 'canary' in name), end=' ')
print('sought')
'''
    tried = await attempt(sandbox, python(seek, cpu_seconds=300.0))
    await sandbox.close()
    print(tried.output.decode())
asyncio.run(main())
"""


@pytest.mark.parametrize("kind", MAKERS)
async def test_no_installed_application_is_seen(kind: str) -> None:
    if why := await missing(kind):
        pytest.skip(f"{kind}: {why}")
    command = [sys.executable, "-c", INSTALL, kind]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: ASYNC221
    assert ran.stdout.split() == ["sought"]


LAYOUTS = {
    "multiarch": ["lib/x86_64-linux-gnu/libc.so.6", "lib64/ld.so", "lib/python3.11/os.py"],
    "lib64": ["lib64/libc.so.6", "lib64/python3.9/os.py", "lib/python3.9/site-packages/noarch/x.py"],
    "lib": ["lib/libc.so.6", "lib/python3.13/os.py"],
}
NEEDED = ["bin/sh", "sbin/ldconfig", "share/zoneinfo/UTC", "lib/locale/C.utf8/LC_CTYPE"]
APPLICATIONS = [
    "share/app/key",
    "local/lib/app/key",
    "local/lib/python3.11/dist-packages/app/key",
    "local/bin/app",
    "libexec/app/key",
    "src/app/key",
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_shows_libraries_and_no_applications(tmp_path: Path, layout: str) -> None:
    for name in (*LAYOUTS[layout], *NEEDED, *APPLICATIONS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    if layout == "lib":
        (tmp_path / "lib64").symlink_to("lib")
    shown = system_parts(tmp_path)

    def is_shown(name: str) -> bool:
        return not set(shown).isdisjoint([tmp_path / name, *(tmp_path / name).parents])

    assert [name for name in (*LAYOUTS[layout], *NEEDED) if not is_shown(name)] == []
    assert [name for name in APPLICATIONS if is_shown(name)] == []


def test_further_folders_are_shown_as_they_are(tmp_path: Path) -> None:
    further = tmp_path / "further"
    (further / "site-packages").mkdir(parents=True)
    binds = build_rootfs(tmp_path, [further]).binds
    assert (str(further), str(further)) in binds
    assert str(further / "site-packages") not in [inside for _, inside in binds]
