"""Generate stubs, the error table and the comments of the contract under gen/, pages of docs/ and seccomp profiles.

`--check` writes into a scratch folder instead and fails when the committed files differ, so stale output cannot land.
"""

from __future__ import annotations

import argparse
import filecmp
import shutil
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools import contract_comments, errordocs, errortable, manifest_docs, protodeps, seccomp_profiles, settings_docs  # noqa: E402  (needs the root on the path when run as a script)

PROTODEPS = ROOT / ".cache" / "protodeps"
DOCUMENTS = {
    "docs/errors.md": errordocs.render,
    "docs/manifest.md": manifest_docs.render,
    "docs/settings.md": settings_docs.render,
    **seccomp_profiles.documents(),
}


def stubs(target: Path) -> None:
    """Compile every proto file into the target folder."""
    protodeps.write(PROTODEPS)
    ours = sorted(p.relative_to(ROOT / "proto").as_posix() for p in (ROOT / "proto").rglob("*.proto"))
    theirs = sorted(p.relative_to(PROTODEPS).as_posix() for p in PROTODEPS.rglob("*.proto"))
    services = [name for name in ours if name.endswith("_service.proto")]
    include = [f"-I{ROOT / 'proto'}", f"-I{PROTODEPS}", f"-I{files('grpc_tools') / '_proto'}"]
    with tempfile.NamedTemporaryFile() as descriptors:
        _protoc([*include, "--include_source_info", f"--descriptor_set_out={descriptors.name}", *ours])
        comments = contract_comments.render(Path(descriptors.name))
    _protoc([*include, f"--python_out={target}", f"--mypy_out=quiet:{target}", *ours, *theirs])
    _protoc([*include, f"--grpc_python_out={target}", f"--mypy_grpc_out=quiet:{target}", *services])
    (target / "toolmesh" / "common" / "v1" / "error_table.py").write_text(errortable.render(target))
    (target / "toolmesh" / "comments.py").write_text(comments)


def _protoc(arguments: list[str]) -> None:
    plugins = Path(sys.executable).parent
    found = [f"--plugin=protoc-gen-{name}={plugins / f'protoc-gen-{name}'}" for name in ("mypy", "mypy_grpc")]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *found, *arguments], check=True)


def write() -> None:
    """Replace the committed output atomically, file by file, where it differs."""
    gen = ROOT / "gen"
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch)
        stubs(fresh)
        for name in _differences(fresh, gen):
            _replace(fresh / Path(name).relative_to("gen"), ROOT / name)
    for name, render in DOCUMENTS.items():
        (ROOT / name).write_text(render())


def _replace(source: Path, target: Path) -> None:
    if not source.exists():
        target.unlink()
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(target.name + ".new")
    shutil.copyfile(source, beside)
    beside.replace(target)


def stale(root: Path = ROOT) -> list[str]:
    """Return every committed file that differs from the generated one."""
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch)
        stubs(fresh)
        wrong = _differences(fresh, root / "gen")
    for name, render in DOCUMENTS.items():
        if not (root / name).exists() or (root / name).read_text() != render():
            wrong.append(name)
    return wrong


def _differences(fresh: Path, committed: Path) -> list[str]:
    names, kept = _files(fresh), _files(committed)
    _, mismatch, _ = filecmp.cmpfiles(fresh, committed, [str(n) for n in names & kept], shallow=False)
    return sorted({f"gen/{n}" for n in (names ^ kept)} | {f"gen/{n}" for n in mismatch})


def _files(folder: Path) -> set[Path]:
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder) for path in found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say what is stale; exit 1 if anything is")
    if not parser.parse_args().check:
        write()
        return 0
    wrong = stale()
    print("\n".join(f"stale: {name} (run `make proto`)" for name in wrong) or "generated files are up to date")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
