"""The choice of wheels for an interpreter, and what is said where none fits."""

from __future__ import annotations

import pytest
from packaging.tags import Tag, sys_tags

from services.executor.adapters.runners.packs.choose_wheels import NoFittingWheelError, choose_wheels, fitting_wheel
from services.executor.adapters.runners.packs.package_lock import WheelError, read_lock

A, B, C = "a" * 64, "b" * 64, "c" * 64
ANY = "demo-1.0-py3-none-any.whl"


def test_the_wheel_that_fits_best_is_chosen_by_hash() -> None:
    packages = read_lock(f"demo==1.0 --hash=sha256:{A} --hash=sha256:{B}\n")
    assert choose_wheels(packages, {ANY: A, "demo-1.0-cp27-none-any.whl": B}) == (ANY,)
    tag = next(iter(sys_tags()))
    native = f"demo-1.0-{tag.interpreter}-{tag.abi}-{tag.platform}.whl"
    assert choose_wheels(packages, {ANY: A, native: B}) == (native,)


def test_an_interpreter_takes_its_own_of_several_wheels() -> None:
    [package] = read_lock(f"demo==1.0 --hash=sha256:{A} --hash=sha256:{B} --hash=sha256:{C}\n")
    names = [f"demo-1.0-cp3{minor}-cp3{minor}-manylinux_2_28_x86_64.whl" for minor in (11, 12, 13)]
    digests = dict(zip(names, (A, B, C), strict=True))
    assert fitting_wheel(package, digests, {Tag("cp312", "cp312", "manylinux_2_28_x86_64"): 0}) == names[1]
    assert fitting_wheel(package, digests, {Tag("cp312", "cp312", "musllinux_1_2_x86_64"): 0}) is None


@pytest.mark.parametrize(
    "files",
    [
        {},
        {ANY: "c" * 64},
        {"other-1.0-py3-none-any.whl": A},
        {"demo-1.0.tar.gz": A},
        {"demo-1.0-cp27-none-any.whl": A},
        {"demo-1.0-py3-none-win32.whl": A},
        {"demo.whl": A},
    ],
)
def test_a_package_without_a_fitting_wheel_of_its_hash_is_refused(files: dict[str, str]) -> None:
    with pytest.raises(WheelError):
        choose_wheels(read_lock(f"demo==1.0 --hash=sha256:{A}\n"), files)


def test_what_this_interpreter_does_not_need_is_not_looked_for() -> None:
    text = f"demo==1.0 --hash=sha256:{A}\nother==2.0 ; sys_platform == 'win32' --hash=sha256:{B}\n"
    assert choose_wheels(read_lock(text), {ANY: A}) == (ANY,)


def test_a_refusal_says_which_interpreters_the_pack_is_for() -> None:
    packages = read_lock(f"demo==1.0 --hash=sha256:{A} --hash=sha256:{B} --hash=sha256:{C}\n")
    files = {
        "demo-1.0-cp290-cp290-manylinux_2_28_x86_64.whl": A,
        "demo-1.0-cp212-abi3-musllinux_1_2_aarch64.whl": B,
        "demo-1.0-cp29-cp29t-manylinux_2_28_x86_64.whl": C,
    }
    with pytest.raises(NoFittingWheelError) as refused:
        choose_wheels(packages, files)
    assert refused.value.pythons == ("free-threaded CPython 2.9", "CPython 2.12 or later", "CPython 2.90")
    assert refused.value.platforms == ("manylinux_2_28_x86_64", "musllinux_1_2_aarch64")
