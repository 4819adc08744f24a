"""Locks of packs, against an index of made wheels. tests/upstreams locks real packages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from authoring.packs import lock_packages as module
from authoring.packs.lock_packages import REQUIREMENTS, LockError, add_requirements, lock_packages
from authoring.packs.pack_library import library_of
from authoring.packs.wheel_target import PLATFORMS, PYTHONS, WheelTarget
from authoring.tests.packs.package_index import add_wheel, serve_index
from services.executor.adapters.runners.packs.choose_wheels import fitting_wheel
from services.executor.adapters.runners.packs.package_lock import read_lock

ALL = [*(WheelTarget(python, PLATFORMS[0]) for python in PYTHONS), WheelTarget(PYTHONS[-1], PLATFORMS[1])]
PURE = "plain-2.0-py3-none-any.whl"
OLD = "older-1.0-py3-none-any.whl"


def native(python: str, platform: str) -> str:
    interpreter = f"cp{python.replace('.', '')}"
    return f"demo-1.0-{interpreter}-{interpreter}-{platform}.whl"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the index that the resolver and the downloader ask."""
    folder = tmp_path / "index"
    for target in ALL:
        add_wheel(folder, native(target.python, target.platform), requires="older; python_version < '3.12'")
    add_wheel(folder, native("3.12", "win_amd64"))
    add_wheel(folder, native("3.12", "musllinux_1_2_x86_64"))
    for pure in (PURE, OLD, "foreign-1.0-py3-none-any.whl"):
        add_wheel(folder, pure)
    with serve_index(folder) as address:
        for name, value in {
            "UV_DEFAULT_INDEX": address, "UV_NO_CONFIG": "1", "UV_CACHE_DIR": str(tmp_path / "uv"),
            "PIP_INDEX_URL": address, "PIP_CONFIG_FILE": "/dev/null", "PIP_CACHE_DIR": str(tmp_path / "pip"),
            "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "XDG_CACHE_HOME": str(tmp_path / "cache"),
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
            monkeypatch.delenv(name, raising=False)
        yield folder


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    (tmp_path / "pack").mkdir()
    add_requirements(tmp_path / "pack", ["demo", "plain", "foreign; sys_platform == 'win32'"])
    return tmp_path / "pack"


def test_a_requirement_of_the_same_package_is_replaced(tmp_path: Path) -> None:
    add_requirements(tmp_path, ["httpx", "Typing_Extensions>=4"])
    add_requirements(tmp_path, ["httpx>=0.28", "typing-extensions==4.16"])
    assert (tmp_path / REQUIREMENTS).read_text().splitlines() == ["httpx>=0.28", "typing-extensions==4.16"]


def test_wheels_of_every_interpreter_are_brought_and_every_file_is_locked(index: Path, pack: Path) -> None:
    wheels = [native(target.python, target.platform) for target in ALL]
    assert lock_packages(pack, ALL) == sorted([*wheels, PURE, OLD])
    [demo, _, older, plain] = read_lock((pack / "requirements.lock").read_text())
    assert len(demo.digests) == len(ALL) + 2
    assert [target.python for target in ALL if target.needs(older)] == ["3.11"]
    assert plain.is_needed()
    library = library_of(pack)
    assert library is not None
    assert (library / "demo.py").is_file()


def test_options_limit_the_interpreters(index: Path, pack: Path) -> None:
    musl = WheelTarget("3.12", "musllinux_1_2_x86_64")
    assert lock_packages(pack, [musl]) == [native("3.12", "musllinux_1_2_x86_64"), PURE]
    [demo, _, plain] = read_lock((pack / "requirements.lock").read_text())
    names = {path.name: module._digest_of(path) for path in (pack / "wheels").iterdir()}
    assert [fitting_wheel(each, names, musl.ranks) for each in (demo, plain)] == [native("3.12", musl.platform), PURE]
    assert fitting_wheel(demo, names, ALL[0].ranks) is None


def test_a_pack_keeps_what_it_had_where_a_wheel_is_missing(index: Path, pack: Path) -> None:
    before = lock_packages(pack, ALL[:1])
    lock = (pack / "requirements.lock").read_bytes()
    (index / native("3.14", PLATFORMS[1])).unlink()
    with pytest.raises(LockError):
        lock_packages(pack, ALL)
    assert (pack / "requirements.lock").read_bytes() == lock
    assert sorted(path.name for path in (pack / "wheels").iterdir()) == before


def test_more_than_a_pack_may_have_is_refused(index: Path, pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 100)
    with pytest.raises(LockError):
        lock_packages(pack, ALL[:1])
    assert not (pack / "wheels").exists()
