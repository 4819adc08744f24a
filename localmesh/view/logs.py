"""Reads the logs of the parts, merged by time."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from localmesh.state.files import last_lines, size_of
from localmesh.state.state import State

POLL_SECONDS = 0.1
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([.,]\d+)?")


def parts(state: State) -> list[str]:
    """Returns the parts that have written a log."""
    return sorted(path.stem for path in state.logs.glob("*.log"))


def read(state: State, names: Sequence[str], count: int, *, follow: bool) -> Iterator[tuple[str, str]]:
    """Yields the last lines of the named parts by time; with `follow`, also new lines."""
    paths = {name: state.log_file(name) for name in names}
    places = {name: size_of(path) for name, path in paths.items()}
    yield from _merged({name: last_lines(path, count) for name, path in paths.items()}, count)
    while follow:
        for name, path in paths.items():
            for line in _written_since(path, places, name):
                yield name, line
        time.sleep(POLL_SECONDS)


def _merged(lines: dict[str, list[str]], count: int) -> list[tuple[str, str]]:
    stamped = []
    for name, own in lines.items():
        stamp = ""
        for line in own:
            found = _TIME.search(line)
            # A line without a time of its own, such as of a stack trace, belongs to the line before it.
            stamp = found[0].replace(" ", "T").replace(",", ".") if found else stamp
            stamped.append((stamp, name, line))
    stamped.sort(key=lambda entry: entry[0])
    return [(name, line) for _, name, line in stamped][-count:] if count else []


def _written_since(path: Path, places: dict[str, int], name: str) -> list[str]:
    size = size_of(path)
    if size < places[name]:  # rotated
        places[name] = 0
    if size == places[name]:
        return []
    with path.open("rb") as file:
        file.seek(places[name])
        text = file.read()
    whole = text[: text.rfind(b"\n") + 1]
    places[name] += len(whole)
    return whole.decode(errors="replace").splitlines()
