"""The interpreters that executors may run, as pip and the markers of a lock describe them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from packaging.tags import Tag, compatible_tags, cpython_tags

from services.executor.adapters.runners.packs.package_lock import LockedPackage

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_28_aarch64")
_PYTHON = re.compile(r"3\.[0-9]{1,2}")
_PLATFORM = re.compile(r"(manylinux_2|musllinux_1)_([0-9]{1,2})_(x86_64|aarch64)")
# What glibc 2.N was called before platforms had its version.
_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
# No wheel of an architecture needs an older glibc.
_OLDEST = {"x86_64": 5, "aarch64": 17}


@dataclass(frozen=True)
class WheelTarget:
    """A version of CPython and the libc and architecture below it."""

    python: str
    platform: str

    def __post_init__(self) -> None:
        """Raise ValueError for a version or a platform that is none."""
        if _PYTHON.fullmatch(self.python) is None:
            raise ValueError(f"{self.python} is no version such as {PYTHONS[0]}")
        if _PLATFORM.fullmatch(self.platform) is None:
            raise ValueError(f"{self.platform} is no platform such as {PLATFORMS[0]} or musllinux_1_2_x86_64")

    def __str__(self) -> str:
        return f"CPython {self.python} on {self.platform}"

    def needs(self, package: LockedPackage) -> bool:
        """Return whether any patch release of the interpreter needs a package. Raises WheelError."""
        return any(package.is_needed(self._environment(patch)) for patch in (0, 99))

    @cached_property
    def ranks(self) -> Mapping[Tag, int]:
        """The tags of wheels that run there; the best is the first."""
        version = (3, int(self.python.partition(".")[2]))
        interpreter = f"cp3{version[1]}"
        tags = [
            *cpython_tags(version, [interpreter], self.platforms),
            *compatible_tags(version, interpreter, self.platforms),
        ]
        return {tag: rank for rank, tag in enumerate(tags)}

    @cached_property
    def platforms(self) -> tuple[str, ...]:
        """The platforms whose wheels run there, in the order of an interpreter."""
        match = _PLATFORM.fullmatch(self.platform)
        assert match is not None
        libc, newest, architecture = match[1], int(match[2]), match[3]
        if libc == "musllinux_1":
            return (f"linux_{architecture}", *(f"{libc}_{minor}_{architecture}" for minor in range(newest, -1, -1)))
        names: list[str] = []
        for minor in range(newest, _OLDEST[architecture] - 1, -1):
            names += [f"{libc}_{minor}", *([_LEGACY[minor]] if minor in _LEGACY else [])]
        return (f"linux_{architecture}", *(f"{name}_{architecture}" for name in names))

    def _environment(self, patch: int) -> dict[str, str]:
        release = f"{self.python}.{patch}"
        return {
            "implementation_name": "cpython",
            "implementation_version": release,
            "os_name": "posix",
            "platform_machine": "aarch64" if self.platform.endswith("aarch64") else "x86_64",
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": release,
            "python_version": self.python,
            "sys_platform": "linux",
        }
