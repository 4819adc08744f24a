"""Decides the health of a version from the announcements of executors and the states of upstreams. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum

from libs.common.url_template import UrlTemplateError, parse_url_template
from services.registry.domain.publishing.manifest import Manifest
from services.registry.domain.runners.announcement import CircuitState, RunnerSet
from services.registry.domain.runners.need import RunnerNeed, need_of

# These runners call a server of an upstream, whose id is the namespace of its tools.
_UPSTREAM_RUNNERS = frozenset({"mcp", "grpc", "websocket"})


class Health(StrEnum):
    """Whether calls of a version can succeed at present."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class VersionHealth:
    """The health of one version."""

    name: str
    """The version, as a resource name."""
    health: Health = Health.HEALTHY
    reason: str = ""
    """Why it is not healthy."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What a version needs to work."""

    need: RunnerNeed
    namespace: str
    services: tuple[str, ...] = ()
    """The external services that an HTTP tool calls, each of which can answer for the others."""

    @property
    def is_of_upstream(self) -> bool:
        """True if its calls go to the server of an upstream."""
        return self.need.kind in _UPSTREAM_RUNNERS


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the registry knows of executors, upstreams and circuits."""

    runners: RunnerSet = RunnerSet()
    circuits: Mapping[str, CircuitState] = field(default_factory=dict)
    """The state of every circuit that changed lately, by its name."""
    silent: Set[str] = frozenset()
    """The ids of the upstreams that do not answer."""


def dependencies_of(manifest: Manifest) -> Dependencies:
    """Return what a version needs, from its manifest."""
    need = need_of(manifest)
    services = tuple(_services(manifest)) if need.kind == "http" else ()
    return Dependencies(need, manifest.name.namespace, services)


def assess(dependencies: Dependencies, conditions: Conditions) -> tuple[Health, str]:
    """Return the health, and why it is not better."""
    missing = conditions.runners.missing(dependencies.need)
    if missing is not None:
        return Health.UNAVAILABLE, missing.message
    namespace = dependencies.namespace
    if dependencies.is_of_upstream and namespace in conditions.silent:
        return Health.UNAVAILABLE, f"the upstream {namespace} does not answer"
    return _assess_circuits(namespace, set(_circuits(dependencies, conditions.circuits).values()))


def _assess_circuits(namespace: str, states: Set[CircuitState]) -> tuple[Health, str]:
    # The reason names no service: all who see the tool see it, and the address may be one inside a network.
    if states == {CircuitState.OPEN}:
        return Health.UNAVAILABLE, f"the service of {namespace} fails: its circuit is open"
    if CircuitState.OPEN in states:
        return Health.DEGRADED, f"a service of {namespace} fails: its circuit is open"
    if CircuitState.HALF_OPEN in states:
        return Health.DEGRADED, f"a service of {namespace} is tried again: its circuit is half open"
    return Health.HEALTHY, ""


def _circuits(dependencies: Dependencies, known: Mapping[str, CircuitState]) -> Mapping[str, CircuitState]:
    """Return the circuits of a version's services. One that no executor saw change is closed."""
    prefix = f"{dependencies.namespace}/"
    if dependencies.is_of_upstream:
        return {name: state for name, state in known.items() if name.startswith(prefix)}
    names = (prefix + service for service in dependencies.services)
    return {name: known.get(name, CircuitState.CLOSED) for name in names}


def _services(manifest: Manifest) -> Iterator[str]:
    """Yield the services of an HTTP tool by the names that their circuits have."""
    endpoint = manifest.execution.get("http", {})
    service = manifest.execution.get("external_service")
    for place, url in enumerate([endpoint.get("url", ""), *endpoint.get("failover_origins", ())]):
        if place == 0 and service:
            yield service
            continue
        try:
            yield parse_url_template(str(url)).origin
        except UrlTemplateError:
            # Admission refuses it.
            continue
