"""The second migration of rows from the first release."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import text

from libs.common.sql.engine import engine_for
from libs.common.sql.migrate import migrate
from libs.common.sql.schema import ServiceSchema
from services.registry.migrations import SCHEMA

ROWS = [
    "insert into namespaces values ('acme', 'acme', now()), ('empty', 'empty', now())",
    "insert into tools values ('acme.find', 'acme', 'acme', 'Find', '{}', '1.1.0', '{}', now(), now())",
    "insert into tool_versions (tool, version, number, digest, manifest, document, size, registered_by,"
    " registered_through, create_time, state, state_reason, update_time, sequence) values"
    " ('acme.find', '1.1.0', '1.1.0', 'd', '{}', '', 0, 'did:web:ben', 'edge', '2026-01-02', 'available', '',"
    " now(), 2),"
    " ('acme.find', '1.0.0', '1.0.0', 'd', '{}', '', 0, 'did:web:ann', 'edge', '2026-01-01', 'disabled', '', now(), 3)",
]


async def test_names_belong_to_their_first_registrar_and_every_version_has_a_history(
    database: Callable[..., str], tmp_path: Path
) -> None:
    scripts, later = tmp_path / "migrations", [f"{revision}_*" for revision in SCHEMA.revisions[1:]]
    shutil.copytree(SCHEMA.folder, scripts, ignore=shutil.ignore_patterns(*later, "__pycache__"))
    url = database("registry", empty=True)
    assert migrate(url, ServiceSchema("registry", scripts)) is None
    engine = engine_for(url, schema="registry")
    async with engine.begin() as connection:
        for row in ROWS:
            await connection.execute(text(row))
    assert migrate(url, SCHEMA) == "0001"
    async with engine.begin() as connection:
        owners = (await connection.execute(text("select namespace, owner from namespaces order by 1"))).all()
        history = (
            await connection.execute(text("select sequence, verb, to_state, actor from transitions order by 1"))
        ).all()
        covered = await connection.scalar(text("select count(*) from tool_versions where beneath = '{}'"))
    await engine.dispose()
    assert [tuple(row) for row in owners] == [("acme", "did:web:ann"), ("empty", "operator")]
    assert [tuple(row) for row in history] == [
        (2, "register", "available", "did:web:ben"),
        (3, "register", "disabled", "did:web:ann"),
    ]
    assert covered == 2
