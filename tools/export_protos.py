"""Write the contract with everything that it imports into one folder, for code generators of any language.

    python tools/export_protos.py build/proto

A generator then needs one include path. The files of google/protobuf come from the installed compiler, the rules of
protovalidate from the installed package; their Go package lies beside those of the contract.
"""

from __future__ import annotations

import re
import shutil
import sys
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools import protodeps  # noqa: E402  (needs the root on the path when run as a script)

_IMPORT = re.compile(r'^import (?:public )?"([^"]+)";', re.M)
_VALIDATE = "buf/validate/validate.proto"
_OPTIONS = 'option go_package = "toolmesh.dev/go/buf/validate;validate";\noption java_package = "build.buf.validate";\n'


def export(target: Path) -> list[str]:
    """Replace the folder with the whole tree; return the names of its files."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(ROOT / "proto", target)
    protodeps.write(target)
    validate = target / _VALIDATE
    package = "package buf.validate;\n"
    validate.write_text(validate.read_text().replace(package, package + _OPTIONS, 1))
    _add_imports(target, Path(str(files("grpc_tools") / "_proto")))
    return sorted(path.relative_to(target).as_posix() for path in target.rglob("*.proto"))


def _add_imports(target: Path, source: Path) -> None:
    """Copy every imported file that is missing, until none is."""
    waiting = list(target.rglob("*.proto"))
    while waiting:
        for name in _IMPORT.findall(waiting.pop().read_text()):
            if not (target / name).exists():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / name, target / name)
                waiting.append(target / name)


if __name__ == "__main__":
    print(f"{len(export(Path(sys.argv[1])))} files in {sys.argv[1]}")
