"""The state folder: what it keeps after the end, and the record of what runs."""

from __future__ import annotations

from pathlib import Path

from deploy.cluster.state_folder import NodeRecord, StateFolder, read_record


def test_the_end_leaves_the_logs_alone(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "cluster")
    state.make()
    (state.log / "etcd.log").write_text("started")
    (state.var / "changes" / "lib").mkdir(parents=True)
    for path in (state.kubeconfig, state.pki / "ca.key"):
        path.write_text("secret")
    NodeRecord([]).write(state)
    state.remove()
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "cluster",
        "cluster/log",
        "cluster/log/etcd.log",
    ]


def test_a_cluster_without_logs_leaves_no_empty_folder(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "cluster")
    state.make()
    state.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_program_is_not_removed(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    state.make()
    (tmp_path / "notes.txt").write_text("mine")
    state.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_keys_and_the_store_are_for_root_alone(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    state.make()
    assert [path.stat().st_mode & 0o777 for path in (state.pki, state.etcd)] == [0o700, 0o700]


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    assert read_record(state) is None
    record = NodeRecord(["/sys/fs/cgroup/memory/tmnode-1"], pid=7, started=99, api_port=40123, cache="/cache")
    record.write(state)
    assert read_record(state) == record
