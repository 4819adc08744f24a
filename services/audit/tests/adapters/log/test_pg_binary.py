"""Packed arrays as PostgreSQL decodes them."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.pq import Format

from services.audit.adapters.log.commit import connect
from services.audit.adapters.log.pg_binary import (
    pack_bigint,
    pack_bigint_array,
    pack_bytea_array,
    pack_repetitive_text_array,
    pack_smallint_array,
    pack_text_array,
    pack_timestamptz_array,
    unpack_timestamptz,
)

UTC_TIMES = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001
whole = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@whole
@given(
    st.lists(st.binary(max_size=50), min_size=1, max_size=20),
    st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1, max_size=20),
    st.lists(UTC_TIMES, min_size=1),
)
def test_an_array_arrives_as_it_was_sent(log_url: str, a: list[bytes], b: list[str], c: list[datetime]) -> None:
    statement = b"select $1::bytea[], $2::text[], array(select t::text from unnest($3::timestamptz[]) t)"
    packed = [pack_bytea_array(a), pack_text_array(b), pack_timestamptz_array(c)]
    with connect(log_url) as connection:
        connection.execute("set timezone = 'UTC'")
        result = connection.pgconn.exec_params(statement, packed, param_formats=[Format.BINARY] * 3)
        expected = connection.execute(
            "select %s::bytea[]::text, %s::text[]::text, array(select t::text from unnest(%s::timestamptz[]) t)::text",
            (a, b, c),
        ).fetchone()
    assert expected is not None
    assert [result.get_value(0, column) for column in range(3)] == [text.encode() for text in expected]


@whole
@given(
    st.integers(0, 130).flatmap(
        lambda size: st.lists(st.text("a1\u00fc\u20ac", min_size=size, max_size=size), min_size=1)
    )
)
def test_texts_of_one_length_and_texts_that_are_often_the_same_arrive_too(log_url: str, column: list[str]) -> None:
    packed = [
        pack_text_array(column),
        pack_repetitive_text_array(column),
        pack_repetitive_text_array([column[0]] * len(column)),
        pack_bytea_array([b"ab", b"cd"]),
    ]
    with connect(log_url) as connection:
        result = connection.pgconn.exec_params(
            b"select $1::text[], $2::text[], $3::text[], $4::bytea[]", packed, param_formats=[Format.BINARY] * 4
        )
        expected = connection.execute(
            "select %s::text[]::text, %s::text[]::text, %s::text[]::text, %s::bytea[]::text",
            (column, column, [column[0]] * len(column), [b"ab", b"cd"]),
        ).fetchone()
    assert expected is not None
    assert [result.get_value(0, at) for at in range(4)] == [text.encode() for text in expected]


@whole
@given(st.lists(st.integers(-(2**15), 2**15 - 1), min_size=1), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_numbers_arrive_as_they_were_sent(log_url: str, a: list[int], b: list[int]) -> None:
    packed = [pack_smallint_array(a), pack_bigint_array(b), pack_bigint(b[0])]
    with connect(log_url) as connection:
        result = connection.pgconn.exec_params(
            b"select $1::int2[], $2::int8[], $3::int8", packed, param_formats=[Format.BINARY] * 3
        )
    said = [f"{{{','.join(map(str, column))}}}".encode() for column in (a, b)]
    assert [result.get_value(0, column) for column in range(3)] == [*said, str(b[0]).encode()]


@whole
@given(UTC_TIMES)
def test_a_moment_comes_back_as_it_was_sent(log_url: str, moment: datetime) -> None:
    packed = pack_timestamptz_array([moment])
    with connect(log_url) as connection:
        result = connection.pgconn.exec_params(
            b"select ($1::timestamptz[])[1]", [packed], param_formats=[Format.BINARY], result_format=Format.BINARY
        )
    assert unpack_timestamptz(result.get_value(0, 0) or b"") == moment
