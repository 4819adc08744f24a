"""The service's role can append with raw SQL, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import psycopg
import pytest

from services.audit.adapters.log.writer import PostgresWriter
from services.audit.domain.merkle.merkle import leaf_hash
from services.audit.tests.conftest import a_writer
from services.audit.tests.database import check_shards, sql
from services.audit.tests.sample import an_entry
from tests.fixtures import owners_url

PRIVILEGE = psycopg.errors.InsufficientPrivilege
COPY_OF_A_ROW = "select shard, sequence, record_id, canonical, leaf_hash, event_time from records where sequence = 1"
COLUMNS = "shard, sequence, record_id, canonical, leaf_hash, event_time"


async def filled(url: str) -> PostgresWriter:
    """Start a log of two shards."""
    writer = a_writer(url)
    await writer.start()
    await writer.append([an_entry(), an_entry(), an_entry()])
    await writer.close_shard(0)
    await writer.append([an_entry()])
    return writer


@pytest.fixture
async def writer(log_url: str) -> AsyncIterator[PostgresWriter]:
    """A log of two shards."""
    writer = await filled(log_url)
    yield writer
    await writer.stop()


@pytest.fixture(scope="module")
def history(shared_database: Callable[[str], str]) -> str:
    """A log of two shards shared by all tests, as none can change it."""
    url = shared_database("audit")

    async def fill() -> None:
        await (await filled(url)).stop()

    asyncio.run(fill())
    return url


FORBIDDEN = [
    # changing
    "update records set status = 'error'",
    "update records set canonical = null where sequence = 1",
    "update records set canonical = canonical where false",
    "update only records_0 set canonical = ''",
    "update records_0 set canonical = ''",
    "with changed as (update records set status = 'error' returning 1) select * from changed",
    f"insert into records ({COLUMNS}) {COPY_OF_A_ROW} on conflict do nothing returning pg_catalog.pg_read_file('x')",
    "insert into records_0 (shard, sequence, record_id, canonical, leaf_hash, event_time) "
    "values (0, 1, 'x', '', '', now()) on conflict (sequence) do update set canonical = ''",
    "merge into records using (select 1) as one on sequence = 1 when matched then update set canonical = ''",
    "merge into records using (select 1) as one on sequence = 1 when matched then delete",
    "select * from records for update",
    "select * from records_0",
    # adding where the tree does not reach, which would block the next append
    "insert into records (shard, sequence, record_id, canonical, leaf_hash, event_time)"
    " values (1, 5, 'x', '{}', '', now())",
    "insert into records (shard, sequence, record_id, canonical, leaf_hash, event_time) values (1, 1000000, 'x',"
    """ '{"event_class":"payload_erased","writer":"audit","erasure":{"sequence":1}}', '', now())""",
    "insert into subtrees values (1, 8, 0, '')",
    "copy records from stdin",
    "copy subtrees from stdin",
    # removing
    "delete from records",
    "delete from only records",
    "delete from records_0",
    "truncate records",
    "truncate records_0",
    "truncate only records",
    "drop table records",
    "drop table records_0",
    "drop schema audit cascade",
    "alter table records detach partition records_0",
    "alter table records detach partition records_0 concurrently",
    "alter table records drop column canonical",
    "alter table records alter column canonical set default ''",
    "alter table records alter column canonical type text using ''",
    "alter table records rename to elsewhere",
    "alter table records set schema public",
    "alter table records set unlogged",
    "alter table records attach partition tree_head for values in (9)",
    "create table records_9 partition of records for values in (9)",
    # going round the guards
    "alter table records disable trigger all",
    "alter table records_0 disable trigger records_are_final",
    "alter table tree_head disable trigger tree_head_goes_forward",
    "drop trigger records_stay on records",
    "drop trigger records_are_final on records_0",
    "create trigger mine before insert on records for each row execute function refuse_change()",
    "create rule mine as on insert to records do instead nothing",
    "create rule mine as on select to records do instead select 1",
    "alter table records enable row level security",
    "create policy mine on records using (false)",
    "create or replace function refuse_change() returns trigger language plpgsql as $$ begin return old; end $$",
    "create function audit.mine() returns void language sql security definer as 'delete from records'",
    "create or replace function evidence(place bigint, kind text) returns jsonb language sql as 'select null::jsonb'",
    "drop function refuse_change() cascade",
    "alter function erase_payload(bigint) owner to audit",
    "alter table records_0 drop constraint records_0_begin",
    "create view audit.mine as select 1",
    "create table audit.mine (like records)",
    "set session_replication_role = replica",
    "select set_config('session_replication_role', 'replica', false)",
    # becoming another role
    "set role audit_owner",
    "set session authorization audit_owner",
    "do $$ begin grant update on records to audit; update records set canonical = null; end $$",
    "grant audit_owner to audit",
    "alter role audit superuser",
    "alter role audit_owner password 'known'",
    "alter schema audit owner to audit",
    "alter table records owner to audit",
    "reassign owned by audit_owner to audit",
    "drop owned by audit_owner",
    "alter default privileges for role audit_owner grant all on tables to audit",
    # copying over
    "copy records from program 'true'",
    "copy records from '/dev/null'",
    "copy records_0 from stdin",
    "copy (delete from records returning 1) to stdout",
    # locking all others out
    "do $$ begin lock table records in access exclusive mode; end $$",
    # the catalog
    "update pg_catalog.pg_class set relowner = 10",
    "delete from pg_catalog.pg_trigger",
    "alter system set fsync = off",
    # what belongs to the evidence
    "delete from tree_head",
    "truncate tree_head",
    "update tree_head set log_id = 'another'",
    "update tree_head set shard = 0",
    "update tree_head set size = 1",
    "update tree_head set size = 99",
    "update tree_head set hashes = '{}'",
    "update tree_head set size = size - 1, hashes = '{}'",
    "update shards set root_hash = ''",
    "update shards set close_time = '2000-01-01'",
    "insert into shards (number, first_sequence, open_time) values (7, 99, now())",
    "delete from shards",
    "update subtrees set hash = ''",
    "delete from subtrees",
    "truncate subtrees",
    "update checkpoints set note = ''",
    "delete from checkpoints",
    "truncate checkpoints cascade",
    "update cosignatures set line = ''",
    "delete from cosignatures",
    "insert into erasures (sequence, erased_by) values (1, 2)",
    "delete from erasures",
    "insert into legal_holds values ('mine', 0, null, 'because', 'me')",
    "update legal_holds set release_time = now()",
    "delete from legal_holds",
    # the owner's functions, which are not public
    "select make_partition(9, 9)",
    "select evidence(1, 'payload_erased')",
    "select held(0, 9)",
]


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_history_cannot_be_changed_by_the_services_own_role(history: str, statement: str) -> None:
    before = sql(history, "select * from records order by sequence")
    with pytest.raises((PRIVILEGE, psycopg.errors.WrongObjectType, psycopg.errors.FeatureNotSupported)) as refused:
        sql(history, statement)
    assert isinstance(refused.value, PRIVILEGE) or "copy (" in statement or "to records do" in statement
    assert sql(history, "select * from records order by sequence") == before
    assert check_shards(history) == [range(3), range(3, 5)]


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        (f"insert into records ({COLUMNS}) {COPY_OF_A_ROW}", PRIVILEGE),
        ("insert into tree_head select 'another', 0, 0, 0, '{}', now()", PRIVILEGE),
        # Nothing is done without the record that says so.
        ("select erase_payload(1)", psycopg.DatabaseError),
        ("select archive_shard(1)", psycopg.DatabaseError),
        ("select drop_shard(1, 1)", psycopg.DatabaseError),
        ("select place_hold(1)", psycopg.DatabaseError),
        ("select release_hold(1)", psycopg.DatabaseError),
        ("select open_shard(0, 3, '')", psycopg.DatabaseError),
        ("do $$ begin delete from audit.records; end $$", PRIVILEGE),
        (
            "do $$ begin create function pg_temp.mine() returns void language sql as 'delete from audit.records';"
            " perform pg_temp.mine(); end $$",
            PRIVILEGE,
        ),
    ],
)
def test_granted_privileges_do_not_reach_history(history: str, statement: str, kind: type[psycopg.Error]) -> None:
    with pytest.raises(kind):
        sql(history, statement)
    assert check_shards(history) == [range(3), range(3, 5)]


@pytest.mark.parametrize(
    ("call", "part"),
    [
        ("erase_payload({})", {"erasure": {"sequence": 1}}),
        ("archive_shard({})", {"archival": {"shard": 0, "manifest_digest": "sha256:0"}}),
        ("drop_shard({}, 1)", {"archival": {"shard": 0, "manifest_digest": "sha256:0", "records_dropped": True}}),
        ("place_hold({})", {"hold": {"hold_id": "mine"}, "caller": {"peer": "executor"}}),
        ("release_hold({})", {"hold": {"hold_id": "mine"}}),
    ],
)
async def test_a_change_needs_a_record_that_the_log_itself_wrote(
    log_url: str, writer: PostgresWriter, call: str, part: dict[str, Any]
) -> None:
    [place] = (await writer.append([an_entry(**part)])).sequences
    with pytest.raises(psycopg.DatabaseError) as refused:
        sql(log_url, "select " + call.format(place))
    assert (refused.value.sqlstate, refused.value.diag.message_detail) == ("TM001", "no_evidence")


APPEND = (
    "select append_records(%s::int8, %s::int8, %s::bytea[], %s::bytea[], %s::text[], %s::bytea[], array[now()],"
    " '{}', '{}', '{}', '{}', '{}', '{}', '{}', %s::int2[], %s::int8[], %s::bytea[])"
)
OTHER = leaf_hash(b"other")


def appended(url: str, form: bytes, **changes: Any) -> list[Any]:
    """Append one record to the two of the open shard with raw SQL, with these changes."""
    [(size, hashes)] = sql(url, "select size, hashes from tree_head")
    parts = {
        "known_size": size,
        "size": size + 1,
        "hashes": [*hashes, leaf_hash(form)],
        "leaves": [leaf_hash(form)],
        "ids": ["raw-record"],
        "forms": [form],
        "levels": None,
        "places": None,
        "nodes": None,
        **changes,
    }
    return sql(url, APPEND, *parts.values())


@pytest.mark.parametrize(
    "changes",
    [
        {"size": 5, "hashes": [OTHER], "ids": [], "forms": [], "leaves": []},
        {"size": 6, "ids": None, "forms": None, "leaves": None},
        {"size": 7, "hashes": [OTHER]},
        {"size": 9, "hashes": [OTHER, OTHER]},
        {"hashes": []},
        {"hashes": None},
        {"forms": [None]},
        {"forms": []},
        {"ids": ["one", "two"], "forms": [b"", b""]},
        {"levels": [8], "places": [0], "nodes": [OTHER]},
        {"levels": [8], "places": [None], "nodes": [OTHER]},
    ],
)
async def test_the_append_function_refuses_rows_that_do_not_match_the_head(
    log_url: str, writer: PostgresWriter, changes: dict[str, Any]
) -> None:
    with pytest.raises(psycopg.DatabaseError) as refused:
        appended(log_url, b"{}", **changes)
    assert refused.value.sqlstate in ("TM001", psycopg.errors.NotNullViolation.sqlstate)
    assert check_shards(log_url) == [range(3), range(3, 5)]
    assert (await writer.append([an_entry()])).sequences == [5]
    assert check_shards(log_url) == [range(3), range(3, 6)]


async def test_an_append_with_an_old_head_stores_nothing(log_url: str, writer: PostgresWriter) -> None:
    assert appended(log_url, b"{}", known_size=4, size=5) == [(None,)]
    assert check_shards(log_url) == [range(3), range(3, 5)]


def an_erasure(sequence: int, leaf: bytes) -> bytes:
    part = {"sequence": sequence, "leaf_hash": leaf.hex(), "reason": "because"}
    return orjson.dumps({"event_class": "payload_erased", "writer": "audit", "erasure": part})


@pytest.mark.parametrize(
    ("form", "changes"),
    [
        (an_erasure(1, OTHER), {}),
        (b'{"event_class":"payload_erased","writer":"audit","erasure":{"sequence":1}}', {}),
        (b'{"erasure":{"sequence":1}}', {}),
        # What is in the tree is not what the record says.
        (an_erasure(1, OTHER), {"leaves": [OTHER]}),
    ],
)
async def test_a_payload_is_not_erased_by_a_record_that_does_not_name_its_leaf(
    log_url: str, writer: PostgresWriter, form: bytes, changes: dict[str, Any]
) -> None:
    appended(log_url, form, **changes)
    with pytest.raises(psycopg.DatabaseError) as refused:
        sql(log_url, "select erase_payload(5)")
    assert (refused.value.sqlstate, refused.value.diag.message_detail) == ("TM001", "no_evidence")
    assert sql(log_url, "select count(*) from records where canonical is null") == [(0,)]


async def test_a_row_beyond_the_head_is_no_evidence(log_url: str, writer: PostgresWriter) -> None:
    [(leaf,)] = sql(log_url, "select leaf_hash from records where sequence = 1")
    form = an_erasure(1, leaf)
    stray = (
        "insert into records (shard, sequence, record_id, canonical, leaf_hash, event_time)"
        " values (1, 1000000, 'x', %s, %s, now())"
    )
    sql(owners_url(log_url), stray, form, leaf_hash(form))
    with pytest.raises(psycopg.DatabaseError) as refused:
        sql(log_url, "select erase_payload(1000000)")
    assert (refused.value.sqlstate, refused.value.diag.message_detail) == ("TM001", "no_evidence")


async def test_a_role_can_take_its_own_rights_away_and_still_changes_nothing(
    log_url: str, writer: PostgresWriter
) -> None:
    sql(log_url, "drop owned by audit")
    assert check_shards(owners_url(log_url)) == [range(3), range(3, 5)]


@pytest.mark.parametrize(
    "statement",
    [
        "update records set status = 'error'",
        "update records set canonical = null where sequence = 1",
        "update records_0 set sequence = 99 where sequence = 1",
        "delete from records",
        "delete from records_0",
        "truncate records",
        "truncate records_0",
        "update tree_head set size = 0",
        "update checkpoints set note = ''",
        "delete from shards",
        "truncate legal_holds",
    ],
)
def test_not_even_the_owner_changes_history_by_mistake(history: str, statement: str) -> None:
    with pytest.raises(PRIVILEGE):
        sql(owners_url(history), statement)
    assert check_shards(history) == [range(3), range(3, 5)]


async def test_the_owner_is_another_role_than_the_services(log_url: str) -> None:
    statement = "select distinct tableowner from pg_tables where schemaname = 'audit'"
    assert sql(log_url, statement) == [("audit_owner",)]
    assert sql(log_url, "select pg_has_role('audit', 'audit_owner', 'member')") == [(False,)]
