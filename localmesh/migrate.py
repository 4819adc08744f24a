"""`python -m localmesh.migrate`: migrates the schemas of several services, as their owners.

Reads a JSON object of database URLs by service from the standard input, and writes one of problems by service.
`python -m services.<name>.migrations` does the same for one service, in a cluster.
"""

from __future__ import annotations

import importlib
import json
import sys

from libs.common.sql.migrate import migrate
from libs.common.sql.schema import SchemaError, ServiceSchema


def migrate_all(owner_urls: dict[str, str]) -> dict[str, str]:
    """Migrate each schema; return what is wrong with those that could not be. One does not keep another back."""
    problems = {}
    for service, url in owner_urls.items():
        schema: ServiceSchema = importlib.import_module(f"services.{service}.migrations").SCHEMA
        try:
            migrate(url, schema)
        except SchemaError as error:
            problems[service] = f"{service} migrations: {error}"
    return problems


if __name__ == "__main__":
    sys.stdout.write(json.dumps(migrate_all(json.load(sys.stdin))) + "\n")
