"""Plans a trip. It asks its caller for what the arguments leave open."""

from toolmesh_tool import Call

CITIES = {"Lisbon": "tram 28", "Oslo": "the opera house", "Vienna": "the Prater"}


def plan(arguments: dict, call: Call) -> dict:
    """Return a plan for a city and a number of days."""
    city = arguments.get("city") or call.ask("Which city?", {"type": "string", "enum": sorted(CITIES)})
    days = arguments.get("days") or call.ask(
        f"How many days in {city}?", {"type": "integer", "minimum": 1, "maximum": 7}
    )
    sights = [CITIES[city], *["a walk"] * (days - 1)]
    return {"city": city, "plan": [f"Day {day}: {sight}" for day, sight in enumerate(sights, start=1)]}
