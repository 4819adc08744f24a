"""Creates the append function: the service's role can no longer insert rows beyond the tree, nor move the head past
missing rows.

One call per commit, so that its checks cost the same for one record as for hundreds. The service still decides the
contents of records and hashes, but not their position. So a record that justifies a change is always part of the log.
"""

from alembic import op

revision = "0005"
down_revision = "0004"

ROLE = "audit"

# PL/pgSQL caches its plans. The head is locked before the first row is inserted, and the log time is taken under that
# lock, so log times never decrease along the log. All replicas share the database clock.
APPEND_RECORDS = """
create function append_records(
    known_size bigint, new_size bigint, peaks bytea[], leaves bytea[], ids text[], forms bytea[], moments timestamptz[],
    subjects text[], tools text[], traces text[], invocations text[], outcomes text[], statuses text[], tickets text[],
    levels smallint[] default null, places bigint[] default null, nodes bytea[] default null
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
        subject, tool_version, trace_id, invocation_id, authz_outcome, status, ticket
    )
    select
        open_shard, known_size + r.ordinal - 1, moment, r.id, r.form, r.leaf, r.event_time,
        nullif(r.subject, ''), nullif(r.tool, ''), nullif(r.trace, ''), nullif(r.invocation, ''),
        nullif(r.outcome, ''), nullif(r.status, ''), nullif(r.ticket, '')
    from unnest(
        ids, forms, leaves, moments, subjects, tools, traces, invocations, outcomes, statuses, tickets
    ) with ordinality as r (
        id, form, leaf, event_time, subject, tool, trace, invocation, outcome, status, ticket, ordinal
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

# The record must be written by the log itself, be in the open shard and below the head's size, match its leaf hash, and
# have the event class of the change.
EVIDENCE = """
create or replace function evidence(place bigint, kind text) returns jsonb language plpgsql stable
set search_path = audit, pg_temp as $$
declare
    form jsonb;
begin
    select convert_from(r.canonical, 'UTF8')::jsonb into form from records as r join tree_head as head using (shard)
        where r.sequence = place and r.sequence < head.size and r.leaf_hash = sha256('\\x00'::bytea || r.canonical);
    if form is null or form ->> 'event_class' is distinct from kind or form ->> 'writer' is distinct from 'audit' then
        perform refuse('no_evidence');
    end if;
    return form;
end
$$
"""

# The log's own records are needed to verify the others, so they cannot be erased. An erasure must name the leaf hash
# that replaces the payload.
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
        invocation_id = null, authz_outcome = null, status = null, ticket = null
        where sequence = target;
end
$$
"""


def upgrade() -> None:
    for statement in (APPEND_RECORDS, EVIDENCE, ERASE_PAYLOAD):
        op.execute(statement)
    op.execute("revoke execute on function append_records from public")
    op.execute(f"grant execute on function append_records to {ROLE}")
    # If the service's role owns the log, its functions need these privileges.
    op.execute(
        f"""
        do $$ begin
            if current_user <> '{ROLE}' then
                revoke insert on records, subtrees from {ROLE};
                revoke update (size, hashes) on tree_head from {ROLE};
            end if;
        end $$
        """
    )
    # Locking a row needs the privilege to update some column; the guards never let this one change.
    op.execute(f"grant update (log_id) on tree_head to {ROLE}")
