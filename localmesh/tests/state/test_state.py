from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import pytest

from localmesh.state.state import State, StateError, open_state, runner_pid, take_lock


def test_a_new_folder_is_private_and_so_is_everything_in_it(tmp_path: Path) -> None:
    state = open_state(tmp_path / "deep" / "state")
    folders = [state.path, state.secrets, state.pki, state.logs]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o700] * 4


def test_a_folder_that_was_open_is_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert stat.S_IMODE(open_state(tmp_path).path.stat().st_mode) == 0o700


def test_a_folder_with_other_peoples_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("chapter one")
    with pytest.raises(StateError):
        open_state(tmp_path)


def test_a_path_that_cannot_be_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError):
        open_state(tmp_path / "file" / "state")


def test_only_one_holds_the_lock_and_the_holder_is_visible(state: State) -> None:
    lock = take_lock(state)
    assert lock is not None
    assert take_lock(state) is None
    assert runner_pid(state) == os.getpid()
    lock.release()
    assert runner_pid(state) is None
    again = take_lock(state)
    assert again is not None
    again.release()


def test_a_missing_folder_has_no_runner(tmp_path: Path) -> None:
    assert runner_pid(State(tmp_path / "none")) is None


def test_there_is_no_runtime_before_the_first_run(state: State) -> None:
    assert state.runtime() == {}


def test_a_runner_that_has_not_written_its_number_yet_has_none(state: State) -> None:
    """Zero would be the sender: a signal to it ends the sender's whole process group."""
    with state.lock_file.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert runner_pid(state) is None
        file.write("4711")
        file.flush()
        assert runner_pid(state) == 4711
