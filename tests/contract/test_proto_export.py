"""The exported contract is complete: a generator needs no other include path, and every file names its Go package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tools.export_protos import export


def test_the_exported_tree_compiles_by_itself(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "proto" / "left").mkdir(parents=True)  # of an earlier export
    names = export(tmp_path / "proto")
    ours = {path.relative_to(repository / "proto").as_posix() for path in (repository / "proto").rglob("*.proto")}
    assert ours < set(names)
    assert not (tmp_path / "proto" / "left").exists()
    # Unlike the Python package, `protoc` itself adds no include path of its own.
    out = tmp_path / "set"
    compiler = (
        "import sys; from grpc_tools import _protoc_compiler as c; sys.exit(c.run_main([a.encode() for a in sys.argv]))"
    )
    arguments = [f"-I{tmp_path / 'proto'}", f"--descriptor_set_out={out}", *names]
    subprocess.run([sys.executable, "-c", compiler, *arguments], check=True)
    files = FileDescriptorSet.FromString(out.read_bytes()).file
    assert {file.name for file in files} == set(names)
    assert all(file.options.go_package for file in files)
