"""Finds TOOLMESH_ variables that no process reads, most often mistyped names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module

from localmesh.settings import ROOT, VARIABLES

# What Kubernetes sets in every pod for each Service whose name begins with toolmesh.
_SERVICE_LINK = re.compile(
    r"TOOLMESH_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


def find_unknown_variables(names: Iterable[str]) -> list[str]:
    """Returns the variables that the local mesh, its services, its client and Kubernetes do not know, sorted."""
    left = {name for name in names if name.startswith("TOOLMESH_")} - VARIABLES.keys()
    left = {name for name in left if not _SERVICE_LINK.fullmatch(name)}
    # The services' own names cost their settings' code, which a start without such a variable need not load.
    return sorted(left - _known_elsewhere()) if left else []


def _known_elsewhere() -> set[str]:
    from libs.common.runtime.settings import FOREIGN, variables

    modules = (f"services.{path.parent.name}.config" for path in (ROOT / "services").glob("*/config.py"))
    settings = (import_module(module).Settings for module in modules)
    return FOREIGN.union(*(variables(cls) for cls in settings))
