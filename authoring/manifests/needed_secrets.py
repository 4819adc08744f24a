"""Says which secrets tools need, and the commands that set them in a local mesh. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

_SCHEME = "secret://"


def needed_secrets(manifests: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the command that sets each secret, by its name. It allows what the tools ask for and no more."""
    options: dict[str, dict[str, None]] = {}
    for manifest in manifests:
        execution = manifest.get("execution", {})
        for use in execution.get("secrets", ()):
            asked = options.setdefault(str(use["secret"]).removeprefix(_SCHEME), {})
            asked[f"--namespace {shlex.quote(str(manifest.get('namespace', '')))}"] = None
            for host in execution.get("network_policy", {}).get("allowed_domains", ()):
                asked[f"--host {shlex.quote(host)}"] = None
    return {name: " ".join(["toolmesh secrets set", name, *sorted(asked)]) for name, asked in sorted(options.items())}
