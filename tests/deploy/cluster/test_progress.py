"""Steps are shown with their seconds, also those that fail."""

from __future__ import annotations

import io
import re

import pytest

from deploy.cluster.progress import Progress


def test_each_step_is_a_line_with_its_seconds() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    with progress.step("start the node"):
        pass
    progress.say("done")
    assert re.fullmatch(r"  start the node \d+\.\d s\ndone\n", stream.getvalue())


def test_a_step_that_fails_is_marked() -> None:
    stream = io.StringIO()
    with pytest.raises(RuntimeError), Progress(stream).step("start the node"):
        raise RuntimeError
    assert re.fullmatch(r"  start the node failed after \d+\.\d s\n", stream.getvalue())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_the_last_seconds_over_the_counted_ones() -> None:
    stream = Terminal()
    with Progress(stream).step("build"):
        pass
    assert re.fullmatch(r"  build \r  build \d+\.\d s\n", stream.getvalue())
