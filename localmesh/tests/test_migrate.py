"""All schemas are migrated by one process; a failure of one keeps no other back."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from localmesh.migrate import migrate_all
from tests.fixtures import owners_url

NOWHERE = "postgresql://registry:secret-word@127.0.0.1:1/toolmesh"


def test_each_problem_is_its_services_and_shows_no_password(database: Callable[..., str]) -> None:
    url = owners_url(database("authz", empty=True))
    problems = migrate_all({"registry": NOWHERE, "authz": url})
    assert problems.keys() == {"registry"}
    assert "secret-word" not in problems["registry"]
    with psycopg.connect(url) as connection:
        assert connection.execute("select version_num from authz.schema_version").fetchone()
