"""Installed packages: once per content, as long as a pack needs them, and read-only inside the sandbox."""

from __future__ import annotations

import gc
from pathlib import Path

from services.executor.adapters.runners.packs.libraries import Libraries
from services.executor.tests.packing import make_pack, python_tool, work
from services.executor.tests.running import Starting, own_tmp, starting
from services.executor.tests.wheels import make_wheel

__all__ = ["own_tmp", "starting"]

WHEEL = "demo-1.0-py3-none-any.whl"
CODE = """
def answer(arguments, call):
    import demo
    try:
        open(demo.__file__, "w")
    except OSError as error:
        return {"answer": demo.ANSWER, "error": type(error).__name__, "file": demo.__file__}
"""


def test_equal_content_is_installed_once_and_removed_when_no_pack_needs_it(tmp_path: Path) -> None:
    libraries = Libraries(tmp_path / "libraries")
    for pack, text in (("one", "X = 1"), ("two", "X = 1"), ("three", "X = 2")):
        make_wheel(tmp_path / pack / "wheels", WHEEL, {"demo.py": text})
    one, two, three = (libraries.require(tmp_path / pack, (WHEEL,)) for pack in ("one", "two", "three"))
    assert one is two
    assert one is not three
    folder = one.folder
    del one
    gc.collect()
    libraries.remove_unused()
    assert folder.is_dir()
    del two
    gc.collect()
    libraries.remove_unused()
    assert not folder.exists()
    assert three.folder.is_dir()


async def test_a_tool_imports_the_packages_of_its_pack(tmp_path: Path, starting: Starting) -> None:
    pack = make_pack(tmp_path / "packs", "bringing", {"code.py": CODE})
    (pack / "requirements.lock").write_text(make_wheel(pack / "wheels", WHEEL, {"demo.py": "ANSWER = 42"}))
    broken = make_pack(tmp_path / "packs", "broken", {"code.py": CODE})
    (broken / "requirements.lock").write_text("demo==1.0\n")
    running = await starting(packs=[tmp_path / "packs"])
    value = await running.value(python_tool("bringing/code:answer"), work())
    assert value == {"answer": 42, "error": "OSError", "file": "/library/demo.py"}
    assert running.sandbox_for(python_tool("broken/code:answer")) is None
