"""`toolmesh deploy doctor`: its report and its exit status."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import typer
from typer.testing import CliRunner

from localmesh.commands import register


def run(*words: str) -> Any:
    app = typer.Typer()
    register(app)
    return CliRunner().invoke(app, ["deploy", "doctor", *words, "--json"])


def test_it_reports_what_it_finds_and_fails(api: Any) -> None:
    ran = run("--namespace", "mesh", "--executor-namespace", "mesh", "--nodes-namespace", "mesh")
    document = json.loads(ran.stdout)
    assert (ran.exit_code, document["ok"]) == (1, False)
    assert {"authz", "gateway", "certificate authz-tls"} <= {check["name"] for check in document["checks"]}


def test_it_says_that_there_is_no_cluster(kubeconfig: Callable[[str], None]) -> None:
    kubeconfig("http://127.0.0.1:1")
    ran = run()
    [check] = json.loads(ran.stdout)["checks"]
    assert (ran.exit_code, check["name"], bool(check["advice"])) == (1, "cluster", True)
