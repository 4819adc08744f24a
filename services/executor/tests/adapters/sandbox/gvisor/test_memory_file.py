"""The memory file of gVisor, found among the open files of a process."""

from __future__ import annotations

import os

from services.executor.adapters.sandbox.gvisor.memory_file import MemoryFile


def test_allocated_blocks_are_counted_without_a_mapping() -> None:
    descriptor = os.memfd_create("runsc-memory")
    memory = MemoryFile()
    try:
        assert memory.used_bytes(os.getpid()) == 0
        os.pwrite(descriptor, b"x" * (1 << 20), 16 << 20)
        assert memory.used_bytes(os.getpid()) == 1 << 20
    finally:
        memory.close()
        os.close(descriptor)


def test_a_process_without_a_memory_file_cannot_be_measured() -> None:
    descriptor = os.memfd_create("other")
    try:
        assert MemoryFile().used_bytes(os.getpid()) is None
        assert MemoryFile().used_bytes(2**22 + 1) is None
    finally:
        os.close(descriptor)
