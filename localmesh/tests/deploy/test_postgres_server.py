"""PostgreSQL of the overlay `local`: which roles may connect to what."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from ipaddress import ip_address, ip_network
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
    # Services are in other pods, of any cluster's network.
    assert all(ip_address(pod) in ip_network(access[0].split()[3]) for pod in ("10.244.0.7", "100.64.3.9"))
    assert "audit_owner" in access[0]
    assert access[0].split()[1] == "toolmesh"
    assert access[1].split()[2] == "postgres"
    assert "port = 5433" in (plan.cluster / "postgresql.conf").read_text()
