"""Packed arrays, as PostgreSQL reads them."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.audit.adapters.arrays import byte_strings, moments, texts
from services.audit.adapters.commit import connect

whole = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@whole
@given(
    st.lists(st.binary(max_size=50), min_size=1, max_size=20),
    st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1, max_size=20),
    st.lists(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)), min_size=1),  # noqa: DTZ001
)
def test_an_array_arrives_as_it_was_sent(log_url: str, a: list[bytes], b: list[str], c: list[datetime]) -> None:
    statement = "select %b::bytea[], %b::text[], array(select t::text from unnest(%b::timestamptz[]) t)"
    with connect(log_url) as connection:
        connection.execute("set timezone = 'UTC'")
        row = connection.execute(statement, (byte_strings(a), texts(b), moments(c))).fetchone()
        expected = connection.execute("select array(select t::text from unnest(%s::timestamptz[]) t)", (c,)).fetchone()
    assert row is not None
    assert ([bytes(item) for item in row[0]], row[1]) == (a, b)
    assert expected == (row[2],)
