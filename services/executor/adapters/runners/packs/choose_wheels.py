"""Chooses the wheels of a pack that fit an interpreter.

An executor never fetches code. It takes the wheel of each locked package that fits its interpreter, by hash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from packaging.tags import Tag, sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from services.executor.adapters.runners.packs.package_lock import FOLDER, LOCK, LockedPackage, WheelError

_CPYTHON = re.compile(r"cp(\d)(\d*)")


class NoFittingWheelError(WheelError):
    """A pack brings no wheel of a package for this interpreter."""

    def __init__(self, package: LockedPackage, interpreter: Tag, offered: Iterable[Tag]) -> None:
        tags = frozenset(offered)
        self.pythons, self.platforms = _pythons_of(tags), tuple(sorted({tag.platform for tag in tags}))
        offer = f"; it needs {' or '.join(self.pythons)} on {' or '.join(self.platforms)}" if tags else ""
        super().__init__(
            f"{FOLDER} has no wheel of {package.name}=={package.version} with a hash of {LOCK} for this interpreter,"
            f" {_python_of(interpreter)} on {interpreter.platform}{offer}; run: toolmesh pack lock"
        )


def choose_wheels(packages: Iterable[LockedPackage], digests: Mapping[str, str]) -> tuple[str, ...]:
    """Return the file name of the wheel of each needed package that fits this interpreter best.

    `digests` has the SHA-256 of each file of the folder. Raises WheelError for a package without such a wheel.
    """
    ranks = {tag: rank for rank, tag in enumerate(sys_tags())}
    chosen = []
    for package in packages:
        if package.is_needed():
            wheel = fitting_wheel(package, digests, ranks)
            if wheel is None:
                offered = (tag for _, tags in _wheels_of(package, digests) for tag in tags)
                raise NoFittingWheelError(package, next(iter(ranks)), offered)
            chosen.append(wheel)
    return tuple(chosen)


def fitting_wheel(package: LockedPackage, digests: Mapping[str, str], ranks: Mapping[Tag, int]) -> str | None:
    """Return the wheel of a package that an interpreter prefers, by its ranked tags; None if none fits."""
    wheels = ((tags & ranks.keys(), name) for name, tags in _wheels_of(package, digests))
    fitting = [(min(ranks[tag] for tag in tags), name) for tags, name in wheels if tags]
    return min(fitting)[1] if fitting else None


def _wheels_of(package: LockedPackage, digests: Mapping[str, str]) -> Iterator[tuple[str, frozenset[Tag]]]:
    for name, digest in digests.items():
        if digest in package.digests and name.endswith(".whl"):
            try:
                distribution, _, _, tags = parse_wheel_filename(name)
            except InvalidWheelFilename:
                continue
            if distribution == package.name:
                yield name, tags


def _pythons_of(tags: Iterable[Tag]) -> tuple[str, ...]:
    """Name the interpreters of tags, the oldest first."""
    return tuple(dict.fromkeys(_python_of(tag) for tag in sorted(tags, key=_age)))


def _age(tag: Tag) -> tuple[int, str]:
    match = _CPYTHON.fullmatch(tag.interpreter)
    return (int(match[2] or 0) if match else 0), str(tag)


def _python_of(tag: Tag) -> str:
    match = _CPYTHON.fullmatch(tag.interpreter)
    if match is None:
        return tag.interpreter
    python = "free-threaded CPython" if tag.abi.endswith("t") else "CPython"
    version = f"{match[1]}.{match[2]}" if match[2] else match[1]
    return f"{python} {version} or later" if tag.abi == "abi3" else f"{python} {version}"
