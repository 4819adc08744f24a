"""Admission rules for the credentials that the code of a tool reads."""

from __future__ import annotations

from collections.abc import Iterator

from libs.common.errors import Violation
from services.registry.domain.publishing.manifest import Manifest

_PATH = "manifest.execution.secrets"


def check_secrets(manifest: Manifest) -> Iterator[Violation]:
    """Allow credentials for Python functions alone, each under a name of its own."""
    uses = manifest.execution.get("secrets", ())
    if uses and manifest.execution.get("runner") != "python":
        message = "is honoured for the runner python only; an HTTP endpoint names its own in execution.http.secrets"
        yield Violation(_PATH, "field.not_honoured", message)
    seen = set[str]()
    for index, use in enumerate(uses):
        if (name := str(use.get("name", ""))) in seen:
            yield Violation(f"{_PATH}[{index}].name", "secrets.twice", f"names {name} a second time")
        seen.add(name)
