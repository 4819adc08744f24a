"""Makes the layers of the images as folders: system, interpreter, packages and code."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.images import debian, wheels
from deploy.images.catalogue import OPTIMIZATION
from deploy.images.platform import Platform

SITE_PACKAGES = Path("app/venv/lib/python3.11/site-packages")
_VENV = "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11.2\n"
_IGNORED = shutil.ignore_patterns("tests", "__pycache__", "*.pyc", "*_cache")


@dataclass(frozen=True)
class System:
    """The folders of an interpreter that runs on this machine. Its bytecode is the same for all platforms."""

    base: Path
    interpreter: Path
    platform: Platform


def make_base(files: Iterable[Path], folder: Path) -> None:
    """Make the system below everything: the C library, authorities of TLS and one user without a shell."""
    debian.unpack(files, folder)
    masters = folder / "usr/share/base-passwd"
    user, group = "toolmesh:x:10001:10001::/app:/usr/sbin/nologin\n", "toolmesh:x:10001:\n"
    (folder / "etc/passwd").write_text((masters / "passwd.master").read_text() + user)
    (folder / "etc/group").write_text((masters / "group.master").read_text() + group)
    authorities = sorted((folder / "usr/share/ca-certificates").rglob("*.crt"))
    bundle = folder / "etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_text("".join(file.read_text() for file in authorities))
    for name in ("proc", "sys", "dev", "run", "app", "home", "root"):
        (folder / name).mkdir(exist_ok=True)
    for name in ("tmp", "var/tmp"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name).chmod(0o1777)
    # Programs that only administer a system; nothing here starts them.
    for name in ("usr/sbin", "usr/share/ca-certificates", "usr/share/base-passwd", "usr/share/base-files"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "usr/sbin").mkdir()
    for program in (folder / "usr/bin").iterdir():
        program.unlink()


def make_interpreter(files: Iterable[Path], folder: Path) -> None:
    """Make the interpreter, with an environment outside /usr: sandboxes show all of /usr to tools."""
    debian.unpack(files, folder)
    (folder / "usr/bin/python3").symlink_to("python3.11")
    (folder / "app/venv/bin").mkdir(parents=True)
    (folder / "app/venv/bin/python").symlink_to("/usr/bin/python3.11")
    (folder / "app/venv/pyvenv.cfg").write_text(_VENV)
    (folder / SITE_PACKAGES).mkdir(parents=True)
    (folder / SITE_PACKAGES / "toolmesh.pth").write_text("/app\n/app/gen\n/app/sdk\n")


def make_packages(files: Iterable[Path], folder: Path) -> None:
    """Make a layer of wheels."""
    (folder / SITE_PACKAGES).mkdir(parents=True)
    for file in files:
        wheels.unpack(file, folder / SITE_PACKAGES)


def make_code(root: Path, trees: Sequence[str], extra: Mapping[str, Path], folder: Path) -> None:
    """Make the layer of our own code, without its tests. `extra` places single programs."""
    app = folder / "app"
    for tree in trees:
        shutil.copytree(root / tree, app / tree, ignore=_IGNORED)
        for parent in Path(tree).parents:
            if (package := root / parent / "__init__.py").is_file() and parent != Path():
                shutil.copyfile(package, app / parent / "__init__.py")
    for place, program in extra.items():
        place_program(program.read_bytes(), folder / place)


def place_program(content: bytes, target: Path) -> None:
    """Write a program into a layer."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    target.chmod(0o755)


def require_platform(folder: Path, platform: Platform) -> None:
    """Raise ValueError if a program or library of a layer is for another machine."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                header = file.read(20)
            if header.startswith(b"\x7fELF") and int.from_bytes(header[18:20], "little") != platform.elf_machine:
                raise ValueError(f"{path.relative_to(folder)} is no program for {platform.name}")


def compile_bytecode(folder: Path, system: System, *levels: int) -> None:
    """Compile a layer's modules with the images' interpreter, at the level that services run with and further ones.

    The checks of source times are off, since a layer has no times; a fixed hash seed makes the bytecode the same. The
    interpreter writes none for the modules that it imports itself: that would hold this machine's paths and times.
    """
    base, interpreter, platform = system.base, system.interpreter, system.platform
    libraries = ":".join(str(each / platform.libraries) for each in (base, interpreter))
    command = [str(base / platform.libraries / platform.loader), "--library-path", libraries]
    command += [str(interpreter / "usr/bin/python3.11"), "-S", "-B", "-m", "compileall"]
    command += [word for level in (OPTIMIZATION, *levels) for word in ("-o", str(level))]
    command += ["-q", "--invalidation-mode", "unchecked-hash", "-s", str(folder), "-p", "/"]
    environment = {"PYTHONHOME": str(interpreter / "usr"), "PYTHONHASHSEED": "0", "PATH": os.defpath}
    # A wheel may carry files of another Python version as examples; they stay without bytecode.
    subprocess.run([*command, str(folder)], env=environment, check=False, stdout=subprocess.DEVNULL, cwd=folder)
