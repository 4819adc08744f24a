"""A dump is of one moment, and its facts are of the same."""

from __future__ import annotations

import psycopg
import pytest

from localmesh.cluster_backup.database_dump import open_dump
from localmesh.cluster_backup.errors import BackupError
from localmesh.state.secrets import DATABASE_ROLES
from localmesh.tests.cluster_backup.conftest import LOG_SIZE, Cluster

_END_DUMPS = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pg_dump'"


def test_the_facts_are_those_of_the_database(mesh: Cluster) -> None:
    with open_dump(mesh.postgres) as (facts, dump):
        assert (facts.log.size, facts.log.checkpoint_shard, facts.log.checkpoint_size) == (LOG_SIZE, 0, 256)
        assert facts.revisions.keys() == set(DATABASE_ROLES)
        assert all(facts.revisions.values())
        assert next(dump).startswith(b"PGDMP")


def test_what_comes_after_the_facts_is_not_in_the_dump(mesh: Cluster) -> None:
    later = b"came-after-the-facts"
    with psycopg.connect(f"{mesh.url}/toolmesh", autocommit=True) as connection:
        with open_dump(mesh.postgres) as (_, dump):
            connection.execute("create table audit.later (word text)")
            connection.execute("comment on table audit.later is 'came-after-the-facts'")
            assert later not in b"".join(dump)
        connection.execute("drop table audit.later")


def test_a_dump_that_fails_half_way_is_no_dump(mesh: Cluster) -> None:
    with psycopg.connect(f"{mesh.url}/toolmesh", autocommit=True) as connection:
        # More than the pipe holds, so that the program is still writing after the first chunk.
        connection.execute("create table audit.large as select gen_random_uuid() from generate_series(1, 300000)")
        try:
            with pytest.raises(BackupError), open_dump(mesh.postgres) as (_, dump):
                next(dump)
                connection.execute(_END_DUMPS)
                list(dump)
        finally:
            connection.execute("drop table audit.large")


def test_a_database_without_a_mesh_is_not_backed_up(lost: Cluster) -> None:
    with pytest.raises(BackupError):
        with open_dump(lost.postgres):
            raise AssertionError("there is nothing to dump")
    with psycopg.connect(f"{lost.url}/postgres", autocommit=True) as connection:
        connection.execute("create database toolmesh")
    with pytest.raises(BackupError):
        with open_dump(lost.postgres):
            raise AssertionError("there is nothing to dump")
