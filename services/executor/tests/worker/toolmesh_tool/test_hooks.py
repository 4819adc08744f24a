"""The hooks of a worker, in a process of their own: an audit hook cannot be removed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CODE = Path(__file__).resolve().parents[3] / "worker"
BOOT = f"""
import os, signal, sys
sys.path.append({str(CODE)!r})
from toolmesh_tool.hooks import InterpreterHooks
# A background job of a shell inherits an ignored SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
hooks = InterpreterHooks()
assert hooks.restore()
"""


def run(code: str) -> None:
    subprocess.run([sys.executable, "-I", "-S", "-B", "-c", BOOT + code], check=True)


def test_what_can_be_restored_is() -> None:
    run("""
signal.signal(signal.SIGUSR1, print)
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.setprofile(print); sys.settrace(print)
assert hooks.restore()
assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
assert sys.getprofile() is None and sys.gettrace() is None
""")


@pytest.mark.parametrize(
    "change",
    [
        "sys.addaudithook(lambda *_: None)",
        "import toolmesh_tool.frames; toolmesh_tool.frames.receive = print",
        "import json; json.loads = print",
        "os.read = print",
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])",
        "import faulthandler; faulthandler.register(signal.SIGUSR1)",
        "import threading; threading.settrace(print)",
    ],
)
def test_what_cannot_be_restored_ends_the_worker(change: str) -> None:
    run(f"import toolmesh_tool.frames\nhooks = InterpreterHooks()\n{change}\nassert not hooks.restore()")
