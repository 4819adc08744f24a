"""Indexes the resource of administrative acts, so that the acts on a resource are found among many records.

Appending takes the resources as a last parameter with a default: replicas of the release before append without it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

ROLE = "audit"
OLD_SIGNATURE = (
    "append_records(bigint, bigint, bytea[], bytea[], text[], bytea[], timestamptz[], text[], text[], text[], text[],"
    " text[], text[], text[], smallint[], bigint[], bytea[])"
)

APPEND_RECORDS = """
create function append_records(
    known_size bigint, new_size bigint, peaks bytea[], leaves bytea[], ids text[], forms bytea[], moments timestamptz[],
    subjects text[], tools text[], traces text[], invocations text[], outcomes text[], statuses text[], tickets text[],
    levels smallint[] default null, places bigint[] default null, nodes bytea[] default null,
    resources text[] default null
) returns timestamptz language plpgsql security definer set search_path = audit, pg_temp as $$
declare
    open_shard integer;
    begun bigint;
    moment timestamptz;
    stored bigint;
begin
    update tree_head set size = new_size, hashes = peaks where size = known_size
        returning shard, first_sequence, clock_timestamp() into open_shard, begun, moment;
    if not found then
        return null;
    end if;
    if (new_size > known_size and cardinality(peaks) = bit_count((new_size - begun)::bit(64))) is not true then
        perform refuse('head_misshapen');
    end if;
    if levels is not null then
        -- Only what this commit completes: a node that was there beforehand would be in the way of the one that does.
        if exists (
            select from unnest(levels, places) as s (level, place)
            where (
                ((s.place + 1) << s.level) > known_size - begun and ((s.place + 1) << s.level) <= new_size - begun
            ) is not true
        ) then
            perform refuse('subtree_misplaced');
        end if;
        insert into subtrees (shard, level, place, hash)
            select open_shard, s.level, s.place, s.hash from unnest(levels, places, nodes) as s (level, place, hash);
    end if;
    insert into records (
        shard, sequence, log_time, record_id, canonical, leaf_hash, event_time,
        subject, tool_version, trace_id, invocation_id, authz_outcome, status, ticket, resource
    )
    select
        open_shard, known_size + r.ordinal - 1, moment, r.id, r.form, r.leaf, r.event_time,
        nullif(r.subject, ''), nullif(r.tool, ''), nullif(r.trace, ''), nullif(r.invocation, ''),
        nullif(r.outcome, ''), nullif(r.status, ''), nullif(r.ticket, ''),
        nullif(r.resource, '')
    from unnest(
        ids, forms, leaves, moments, subjects, tools, traces, invocations, outcomes, statuses, tickets, resources
    ) with ordinality as r (
        id, form, leaf, event_time, subject, tool, trace, invocation, outcome, status, ticket, resource, ordinal
    )
    where r.form is not null;
    get diagnostics stored = row_count;
    if stored <> new_size - known_size then
        perform refuse('head_ahead');
    end if;
    return moment;
end
$$
"""

ERASE_PAYLOAD = """
create or replace function erase_payload(place bigint) returns void language plpgsql security definer
set search_path = audit, pg_temp as $$
declare
    said jsonb := evidence(place, 'payload_erased') -> 'erasure';
    target bigint := (said ->> 'sequence')::bigint;
    payload bytea;
    leaf bytea;
    kind text;
begin
    select canonical, leaf_hash into payload, leaf from records where sequence = target and sequence < place for update;
    if payload is null then
        perform refuse('payload_unknown');
    elsif encode(leaf, 'hex') is distinct from said ->> 'leaf_hash' then
        perform refuse('no_evidence');
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
        invocation_id = null, authz_outcome = null, status = null, ticket = null,
        resource = null
        where sequence = target;
end
$$
"""


def upgrade() -> None:
    op.add_column("records", sa.Column("resource", sa.Text))
    # Acts are few: both indexes hold nothing else.
    acts = sa.text("resource is not null")
    op.create_index("records_resource", "records", ["resource", "sequence"], postgresql_where=acts)
    op.create_index("records_acts", "records", ["sequence"], postgresql_where=acts)
    op.execute(f"drop function {OLD_SIGNATURE}")
    for statement in (APPEND_RECORDS, ERASE_PAYLOAD):
        op.execute(statement)
    op.execute("revoke execute on function append_records from public")
    op.execute(f"grant execute on function append_records to {ROLE}")
