"""PostgreSQL of the overlay `local`: which roles may connect to what."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from localmesh import wheels
from localmesh.deploy.postgres_server import plan_of, prepare
from localmesh.parts.cluster import choose_folder, choose_user


def test_only_known_roles_connect_and_only_by_password(tmp_path: Path) -> None:
    user = choose_user()
    plan = plan_of(
        choose_folder(tmp_path, user), "postgresql://postgres:abc@postgres:5433/postgres", wheels.postgres_programs()
    )
    asyncio.run(prepare(replace(plan, run_as=user)))
    access = (plan.cluster / "pg_hba.conf").read_text().splitlines()
    assert {line.split()[-1] for line in access} == {"scram-sha-256"}
    assert "audit_owner" in access[0]
    assert access[0].split()[1] == "toolmesh"
    assert access[1].split()[2] == "postgres"
    assert "port = 5433" in (plan.cluster / "postgresql.conf").read_text()
