"""The platforms that images are built for, and what each is called by Debian, wheels and the kernel."""

from __future__ import annotations

import os
from dataclasses import dataclass

# The C library of the images decides which wheels run there.
_GLIBC_MINOR = 36


@dataclass(frozen=True)
class Platform:
    """One kind of machine."""

    name: str
    """What OCI and Debian call it."""
    machine: str
    """What the kernel and wheels call it."""
    loader: str
    """The file name of its dynamic loader."""
    elf_machine: int
    """What programs for it say in their header."""

    @property
    def libraries(self) -> str:
        """Return the folder of shared libraries in a Debian root."""
        return f"usr/lib/{self.machine}-linux-gnu"

    @property
    def python_platform(self) -> str:
        """Return the platform as uv resolves for it."""
        return f"{self.machine}-manylinux_2_{_GLIBC_MINOR}"

    @property
    def wheel_tags(self) -> tuple[str, ...]:
        """Return the tags of wheels that run there, newest first."""
        newer = (f"manylinux_2_{minor}_{self.machine}" for minor in range(_GLIBC_MINOR, 4, -1))
        return (
            *newer,
            *(f"{older}_{self.machine}" for older in ("manylinux2014", "manylinux2010", "manylinux1", "linux")),
        )


PLATFORMS = {
    each.name: each
    for each in (
        Platform("amd64", "x86_64", "ld-linux-x86-64.so.2", 0x3E),
        Platform("arm64", "aarch64", "ld-linux-aarch64.so.1", 0xB7),
    )
}


def native_platform() -> Platform:
    """Return the platform of this machine. Raises KeyError if images cannot be built on it."""
    return {each.machine: each for each in PLATFORMS.values()}[os.uname().machine]
