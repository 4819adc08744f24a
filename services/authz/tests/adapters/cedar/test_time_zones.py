"""Policies about the time in a zone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from services.authz.adapters.cedar.compiler import compiler_for
from services.authz.adapters.cedar.engine import CedarEngine
from services.authz.adapters.cedar.time_zones import unknown_zones, zone_tags, zones_read
from services.authz.domain.model import Allow, ContextField
from services.authz.tests.adapters.cedar.test_engine import SILENT, make_request
from services.authz.tests.policy_texts import forbid, permit
from services.authz.wiring import POLICIES

COMPILER = compiler_for(POLICIES)
BERLIN = 'context.zones.hasTag("Europe/Berlin") && context.zones.getTag("Europe/Berlin")'


def engine_of(*policies: str) -> CedarEngine:
    return CedarEngine(COMPILER.compile({"a.cedar": "\n".join(policies)}), SILENT)


def problems_of(condition: str) -> list[tuple[str, str]]:
    problems, _ = COMPILER.validate({"a.cedar": permit("open") + "\n" + forbid("zoned", condition)})
    return [(problem.policy or problem.document, problem.rule) for problem in problems]


@pytest.mark.parametrize(
    ("time", "rule", "forbidden"),
    [
        # Summer and winter, and a day that has begun there already.
        (datetime(2026, 7, 1, 4, 30, tzinfo=UTC), ".hour < 7", True),
        (datetime(2026, 7, 1, 5, 0, tzinfo=UTC), ".hour < 7", False),
        (datetime(2026, 1, 5, 5, 59, tzinfo=UTC), ".hour < 7", True),
        (datetime(2026, 1, 4, 23, 0, tzinfo=UTC), ".weekday == 1", True),
        (datetime(2026, 12, 23, 23, 30, tzinfo=UTC), '.date == "2026-12-24"', True),
    ],
)
def test_the_time_of_a_zone_decides(time: datetime, rule: str, forbidden: bool) -> None:
    engine = engine_of(permit("open"), forbid("zoned", BERLIN + rule))
    request = replace(make_request(), time=time)
    assert isinstance(engine.decide(request).outcome, Allow) is not forbidden
    assert engine.context_fields(request) == {ContextField.TIME}


@pytest.mark.parametrize(
    "condition",
    [
        'context.zones.hasTag("Europe/Berlim")',
        'context.zones.hasTag("") ',
        "context.zones.hasTag(context.session_id)",
        '(if true then context.zones else context.zones).hasTag("Europe/Berlin")',
        '{"z": context.zones}.z.hasTag("Europe/Berlin")',
    ],
)
def test_a_zone_that_would_never_match_is_refused(condition: str) -> None:
    assert ("a.cedar", "zone") in problems_of(condition)


def test_known_zones_are_accepted_and_only_they_are_computed() -> None:
    assert problems_of(BERLIN + ".hour < 7") == []
    engine: Any = engine_of(permit("open"), forbid("zoned", BERLIN + '.hour < 7 || context.zones.hasTag("Asia/Tokyo")'))
    assert engine._set.zones == {"Europe/Berlin", "Asia/Tokyo"}
    conditions = [{"kind": "when", "body": {"hasTag": {"left": {"Value": 1}, "right": {"Value": "x"}}}}]
    assert (zones_read(conditions), unknown_zones(conditions)) == (frozenset(), [])
    assert zone_tags(datetime(2026, 1, 5, 23, 5, tzinfo=UTC), ["Asia/Tokyo"]) == {
        "Asia/Tokyo": {"hour": 8, "minute": 5, "weekday": 2, "date": "2026-01-06"}
    }
