"""Creates the functions by which the service changes its log other than by appending. They run as the owner and check
all conditions.

Each change except opening a shard must first be recorded in the open shard, in the same transaction: the function reads
that record and does what it describes. Refusals have SQLSTATE TM001 and a condition word as detail.
"""

from alembic import op

revision = "0002"
down_revision = "0001"

ROLE = "audit"
CALLABLE = (
    "open_shard(integer, bigint, bytea)",
    "seal_shard(integer)",
    "archive_shard(bigint)",
    "lock_for_drop()",
    "drop_shard(bigint, integer)",
    "place_hold(bigint)",
    "release_hold(bigint)",
    "erase_payload(bigint)",
)

# Each function sets the search path, so that the caller's objects cannot shadow those of the log.
REFUSE = """
create function refuse(word text) returns void language plpgsql as $$
begin
    raise exception 'the log does not allow this: %', word using errcode = 'TM001', detail = word;
end
$$
"""

MAKE_PARTITION = """
create function make_partition(number integer, first bigint) returns void language plpgsql
set search_path = audit, pg_temp as $$
declare
    partition text := format('records_%s', number);
begin
    execute format('create table %I (like records including defaults)', partition);
    execute format('alter table %I add constraint %I primary key (sequence)', partition, partition || '_sequence_key');
    execute format('alter table %I add constraint %I unique (record_id)', partition, partition || '_record_id_key');
    execute format('alter table %I add constraint %I check (sequence >= %s)', partition, partition || '_begin', first);
    execute format(
        'create trigger records_stay before delete or truncate on %I'
        ' for each statement execute function refuse_change()',
        partition
    );
    execute format(
        'create trigger records_are_final before update on %I for each row execute function refuse_unless_erased()',
        partition
    );
    execute format('alter table %I enable always trigger records_stay', partition);
    execute format('alter table %I enable always trigger records_are_final', partition);
    -- Attached rather than made in place, which would lock readers and writers out of the whole log.
    execute format('alter table records attach partition %I for values in (%s)', partition, number);
end
$$
"""

OPEN_SHARD = """
create function open_shard(previous integer, known_size bigint, root bytea) returns timestamptz
language plpgsql security definer set search_path = audit, pg_temp as $$
declare
    opened timestamptz := clock_timestamp();
    ended tree_head;
begin
    select * into strict ended from tree_head for update;
    if ended.shard <> previous or ended.size <> known_size or ended.size = ended.first_sequence then
        perform refuse('shard_moved');
    end if;
    update shards set size = ended.size - ended.first_sequence, root_hash = root, close_time = opened
        where number = previous;
    update tree_head set shard = previous + 1, first_sequence = ended.size, hashes = '{}', open_time = opened;
    insert into shards (number, first_sequence, open_time) values (previous + 1, ended.size, opened);
    perform make_partition(previous + 1, ended.size);
    return opened;
end
$$
"""

# A closed shard has a record for each of its sequences, so this constraint prevents any further insert.
SEAL_SHARD = """
create function seal_shard(wanted integer) returns boolean language plpgsql security definer
set search_path = audit, pg_temp set lock_timeout = '500ms' as $$
declare
    partition text := format('records_%s', wanted);
    closed shards;
begin
    select * into closed from shards where number = wanted and close_time is not null and drop_time is null;
    if not found then
        return exists (select from shards where number = wanted and drop_time is not null);
    end if;
    if exists (select from pg_constraint where conrelid = to_regclass(partition) and conname = partition || '_end') then
        return true;
    end if;
    execute format(
        'alter table %I add constraint %I check (sequence < %s) not valid',
        partition, partition || '_end', closed.first_sequence + closed.size
    );
    return true;
exception when lock_not_available then
    return false;
end
$$
"""

# The record must be written by the log itself, be in the open shard, and have the event class of the change.
EVIDENCE = """
create function evidence(place bigint, kind text) returns jsonb language plpgsql stable
set search_path = audit, pg_temp as $$
declare
    form jsonb;
begin
    select convert_from(canonical, 'UTF8')::jsonb into form from records
        where sequence = place and shard = (select shard from tree_head);
    if form is null or form ->> 'event_class' <> kind or form ->> 'writer' <> 'audit' then
        perform refuse('no_evidence');
    end if;
    return form;
end
$$
"""

HELD = """
create function held(first bigint, behind bigint) returns boolean language sql stable
set search_path = audit, pg_temp as $$
    select exists (
        select from legal_holds where release_time is null
            and first_sequence < behind and (end_sequence is null or end_sequence > first)
    )
$$
"""

ARCHIVE_SHARD = """
create function archive_shard(place bigint) returns void language plpgsql security definer
set search_path = audit, pg_temp as $$
declare
    said jsonb := evidence(place, 'shard_archived') -> 'archival';
    found_shard shards;
begin
    select * into found_shard from shards where number = (said ->> 'shard')::integer for update;
    if not found then
        perform refuse('shard_unknown');
    elsif found_shard.close_time is null then
        perform refuse('shard_open');
    elsif found_shard.manifest_digest <> said ->> 'manifest_digest' then
        perform refuse('archive_differs');
    end if;
    update shards set
        archive_time = coalesce(archive_time, clock_timestamp()), manifest_digest = said ->> 'manifest_digest'
        where number = found_shard.number;
end
$$
"""

# Locked before the head: a writer that waits for the head already holds a lock on the table.
LOCK_FOR_DROP = """
create function lock_for_drop() returns void language plpgsql security definer
set search_path = audit, pg_temp set lock_timeout = '2s' as $$
begin
    lock table records in access exclusive mode;
end
$$
"""

DROP_SHARD = """
create function drop_shard(place bigint, years integer) returns void language plpgsql security definer
set search_path = audit, pg_temp set lock_timeout = '2s' as $$
declare
    said jsonb := evidence(place, 'shard_archived') -> 'archival';
    archived shards;
begin
    perform archive_shard(place);
    select * into strict archived from shards where number = (said ->> 'shard')::integer;
    if not (said ->> 'records_dropped')::boolean then
        perform refuse('no_evidence');
    elsif years is null or years not between 1 and 7 then
        perform refuse('retention_out_of_range');
    elsif archived.close_time + make_interval(years => years) > clock_timestamp() then
        perform refuse('retention');
    elsif held(archived.first_sequence, archived.first_sequence + archived.size) then
        perform refuse('legal_hold');
    elsif archived.drop_time is null then
        execute format('drop table %I', format('records_%s', archived.number));
        update shards set drop_time = clock_timestamp() where number = archived.number;
    end if;
end
$$
"""

PLACE_HOLD = """
create function place_hold(place bigint) returns void language plpgsql security definer
set search_path = audit, pg_temp as $$
declare
    said jsonb := evidence(place, 'hold_placed');
begin
    insert into legal_holds (hold_id, first_sequence, end_sequence, reason, placed_by) values (
        said #>> '{hold,hold_id}', (said #>> '{hold,first_sequence}')::bigint,
        nullif((said #>> '{hold,end_sequence}')::bigint, 0), said #>> '{hold,reason}',
        coalesce(said #>> '{caller,subject}', said #>> '{caller,peer}')
    );
exception when unique_violation then
    perform refuse('hold_exists');
end
$$
"""

RELEASE_HOLD = """
create function release_hold(place bigint) returns void language plpgsql security definer
set search_path = audit, pg_temp as $$
declare
    said jsonb := evidence(place, 'hold_released');
begin
    update legal_holds set release_time = clock_timestamp()
        where hold_id = said #>> '{hold,hold_id}' and release_time is null;
    if not found then
        perform refuse('hold_unknown');
    end if;
end
$$
"""

# The log's own records are needed to verify the others, so they cannot be erased.
ERASE_PAYLOAD = """
create function erase_payload(place bigint) returns void language plpgsql security definer
set search_path = audit, pg_temp as $$
declare
    target bigint := (evidence(place, 'payload_erased') #>> '{erasure,sequence}')::bigint;
    payload bytea;
    kind text;
begin
    select canonical into payload from records where sequence = target for update;
    if payload is null then
        perform refuse('payload_unknown');
    elsif held(target, target + 1) then
        perform refuse('legal_hold');
    end if;
    begin
        kind := convert_from(payload, 'UTF8')::jsonb ->> 'event_class';
    exception when others then
        kind := ''; -- not every JSON fits into jsonb, but all that the log writes itself does
    end;
    if kind in ('shard_opened', 'payload_erased', 'hold_placed', 'hold_released', 'shard_archived') then
        perform refuse('own_record');
    end if;
    insert into erasures (sequence, erased_by) values (target, place);
    update records set
        canonical = null, event_time = log_time, subject = null, tool_version = null, trace_id = null,
        invocation_id = null, authz_outcome = null, status = null, ticket = null
        where sequence = target;
end
$$
"""


def upgrade() -> None:
    for statement in (
        REFUSE,
        MAKE_PARTITION,
        OPEN_SHARD,
        SEAL_SHARD,
        EVIDENCE,
        HELD,
        ARCHIVE_SHARD,
        LOCK_FOR_DROP,
        DROP_SHARD,
        PLACE_HOLD,
        RELEASE_HOLD,
        ERASE_PAYLOAD,
    ):
        op.execute(statement)
    op.execute("select make_partition(0, 0)")
    op.execute("revoke execute on all functions in schema audit from public")
    for function in CALLABLE:
        op.execute(f"grant execute on function {function} to {ROLE}")
