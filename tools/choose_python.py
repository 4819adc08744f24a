"""Names the Python that the virtual environment is made with: the fastest of those on the PATH that can make one.

Builds of one and the same version differ by more than half: a distribution's is compiled with profiles of real programs,
one compiled by hand seldom is. What the mesh adds to a call is Python, so this is the cheapest speed there is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

NAMES = ("python3", "python3.14", "python3.13", "python3.12", "python3.11")
# The first one found is what its owner calls Python; it is passed over only for one that is clearly faster.
CLEARLY = 0.85

# Prints nothing, and so is left out, where it is too old or cannot make an environment.
_ASK = """
import sys
if sys.version_info < (3, 11): sys.exit()
import ensurepip, time, venv
class Pair:
    __slots__ = ("left", "right")
    def __init__(self, left, right): self.left = left; self.right = right
def work():
    kept = {}
    for number in range(20_000):
        pair = Pair(number, str(number))
        kept[pair.right] = pair
        if isinstance(pair, Pair) and pair.left % 3 == 0: kept.pop(pair.right)
def took():
    before = time.process_time(); work(); return time.process_time() - before
print(min(took() for _ in range(5)), sys._base_executable)
"""


def main() -> None:
    """Print the path of the chosen Python, or of the one named as an argument if it will do; exit with 1 where none does."""
    path = os.environ.get("PATH", "")
    named = (Path(which) for name in sys.argv[1:] if (which := shutil.which(name)))
    chosen = choose([asked for python in (named if sys.argv[1:] else found(path)) if (asked := ask(python))])
    if chosen is None:
        sys.exit(1)
    print(chosen)


def found(path: str) -> Iterator[Path]:
    """Every Python of the folders in `path`: all that go by the first name, then all that go by the second."""
    for name in NAMES:
        for folder in filter(None, path.split(os.pathsep)):
            if os.access(candidate := Path(folder, name), os.X_OK):
                yield candidate


def ask(python: Path) -> tuple[float, Path] | None:
    """The seconds that a piece of work takes in `python`, and where it really lies."""
    try:
        answer = subprocess.run([python, "-I", "-c", _ASK], capture_output=True, text=True, timeout=20, check=True)
        seconds, where = answer.stdout.strip().split(" ", 1)
        return float(seconds), Path(where).resolve()
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def choose(asked: list[tuple[float, Path]]) -> Path | None:
    """The first of those asked, unless another is clearly faster; one asked under several names counts by its best."""
    best: dict[Path, float] = {}
    for seconds, python in asked:
        best[python] = min(seconds, best.get(python, seconds))
    if not best:
        return None
    first, fastest = next(iter(best)), min(best, key=best.__getitem__)
    return fastest if best[fastest] < CLEARLY * best[first] else first


if __name__ == "__main__":
    main()
