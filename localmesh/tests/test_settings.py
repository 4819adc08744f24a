from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from localmesh.settings import (
    VARIABLES,
    SettingError,
    Settings,
    inherited_environment,
    settings_from,
    state_path,
)


def test_an_empty_environment_gives_the_defaults() -> None:
    assert settings_from({}) == Settings()


def test_every_setting_can_be_chosen() -> None:
    chosen = settings_from(
        {
            "TOOLMESH_LOG_LEVEL": "debug",
            "TOOLMESH_DRAIN_SECONDS": "1.5",
            "TOOLMESH_OTLP_ENDPOINT": "http://127.0.0.1:4317",
            "TOOLMESH_TRACE_SAMPLE_RATIO": "0.1",
            "TOOLMESH_EDGE_RATE": "7",
            "TOOLMESH_EDGE_BURST": "8",
            "TOOLMESH_RELAY": "kafka",
            "TOOLMESH_KAFKA_BROKERS": "127.0.0.1:9092",
            "TOOLMESH_MAX_TOKEN_LIFETIME": "3600",
        }
    )
    named = Settings(
        "debug", 1.5, "http://127.0.0.1:4317", 0.1, 7, 8, "kafka", "127.0.0.1:9092", max_token_lifetime=3600
    )
    assert chosen == named


@pytest.mark.parametrize("name", ["EDGE_RATE", "EDGE_BURST", "DRAIN_SECONDS", "TRACE_SAMPLE_RATIO"])
def test_a_number_that_is_none_is_refused_by_the_name_of_its_variable(name: str) -> None:
    with pytest.raises(SettingError, match=f"TOOLMESH_{name}.*many"):
        settings_from({f"TOOLMESH_{name}": "many"})


def test_every_field_has_a_variable() -> None:
    assert {field for field, _ in VARIABLES.values()} == {field.name for field in fields(Settings)}


def test_the_state_folder_is_the_chosen_one_then_the_environments_then_the_users(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TOOLMESH_STATE", str(tmp_path / "environment"))
    assert state_path(tmp_path / "chosen") == tmp_path / "chosen"
    assert state_path() == tmp_path / "environment"
    monkeypatch.delenv("TOOLMESH_STATE")
    assert state_path() == tmp_path / ".local" / "state" / "toolmesh"


def test_children_inherit_no_variable_that_a_service_would_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLMESH_STATE", "/somewhere")
    monkeypatch.setenv("OTHER", "kept")
    environment = inherited_environment()
    assert environment["OTHER"] == "kept"
    assert not any(name.startswith("TOOLMESH_") for name in environment)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LOG_LEVEL", "loud"),
        ("DRAIN_SECONDS", "nan"),
        ("DRAIN_SECONDS", "-1"),
        ("TRACE_SAMPLE_RATIO", "7"),
        ("EDGE_RATE", "-5"),
        ("EDGE_BURST", "0"),
        ("RELAY", "rabbit"),
        ("OTLP_ENDPOINT", "collector:4317"),
        ("OTLP_ENDPOINT", "http://collector"),
        ("OTLP_ENDPOINT", "http://collector:many"),
        ("MAX_TOKEN_LIFETIME", "0"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_before_anything_starts(name: str, value: str) -> None:
    with pytest.raises(SettingError, match=f"TOOLMESH_{name}"):
        settings_from({f"TOOLMESH_{name}": value})


def test_an_empty_value_is_none() -> None:
    assert settings_from(dict.fromkeys(VARIABLES, "")) == Settings()


def test_paths_begin_where_the_person_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    chosen = settings_from(
        {
            "TOOLMESH_HOOKS": "hooks.json",
            "TOOLMESH_TRUSTED_ISSUERS": "./issuers.json",
            "TOOLMESH_DID_RESOLVER": "dids",
            "TOOLMESH_RUNSC": "~/runsc",
            "TOOLMESH_SANDBOX_CGROUPS": "required",
            "TOOLMESH_TOOL_PACKS": "packs, /elsewhere",
            "TOOLMESH_VOLUMES": "reports=out,other=/srv/other",
        }
    )
    assert (chosen.hooks, chosen.trusted_issuers) == (f"{tmp_path}/hooks.json", f"{tmp_path}/issuers.json")
    assert (chosen.did_resolver, chosen.runsc) == (f"{tmp_path}/dids", f"{tmp_path}/home/runsc")
    assert chosen.sandbox_cgroups == "required"
    assert chosen.tool_packs == f"{tmp_path}/packs,/elsewhere"
    assert chosen.volumes == f"reports={tmp_path}/out,other=/srv/other"
    address = "https://resolver.example/1.0"
    assert settings_from({"TOOLMESH_DID_RESOLVER": address}).did_resolver == address


def test_a_folder_with_a_comma_in_its_name_is_one(tmp_path: Path) -> None:
    odd = tmp_path / "mine, yours"
    odd.mkdir()
    chosen = settings_from({"TOOLMESH_TOOL_PACKS": str(odd), "TOOLMESH_VOLUMES": f"a={odd},b={tmp_path}"})
    assert (chosen.tool_packs, chosen.volumes) == (str(odd), f"a={odd},b={tmp_path}")


def test_children_do_not_hear_how_a_person_reaches_another_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSSLMODE", "require")
    monkeypatch.setenv("PGOPTIONS", "-c search_path=elsewhere")
    assert not any(name.startswith("PG") for name in inherited_environment())
