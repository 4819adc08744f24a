"""Plans a trip. It asks its caller for what the arguments leave open."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from toolmesh_tool import Call, Limits, tool

CITIES = {"Lisbon": "tram 28", "Oslo": "the opera house", "Vienna": "the Prater"}
Days = Annotated[int, Limits(ge=1, le=7)]


class Trip(TypedDict):
    city: str
    plan: list[str]


@tool(
    namespace="samples",
    title="Plan a trip",
    mutation_class="read_only",
    tier="process",
    timeout_class="async",
    timeout=600,
    memory="128Mi",
    cancellation=True,
    tags=["travel"],
    examples=[({"city": "Oslo", "days": 2}, {"city": "Oslo", "plan": ["Day 1: the opera house", "Day 2: a walk"]})],
    manifest={"observability": {"audit_detail": "summary"}},
)
def plan_trip(call: Call, city: Literal["Lisbon", "Oslo", "Vienna"] | None = None, days: Days | None = None) -> Trip:
    """Plans a few days in a city, and asks its caller for the city and the days that are left open.

    Args:
        city: Where to go; asked for if left out.
        days: How long; asked for if left out.
    """
    where = city or call.ask("Which city?", {"type": "string", "enum": sorted(CITIES)})
    length = days or call.ask(f"How many days in {where}?", {"type": "integer", "minimum": 1, "maximum": 7})
    sights = [CITIES[where], *["a walk"] * (length - 1)]
    return {"city": where, "plan": [f"Day {day}: {sight}" for day, sight in enumerate(sights, start=1)]}
