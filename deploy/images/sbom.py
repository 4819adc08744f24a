"""Describes an image: its parts as CycloneDX, its making as a statement of in-toto with SLSA provenance."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from deploy.images.platform import Platform


@dataclass(frozen=True, order=True)
class Component:
    """A package in an image."""

    purl: str
    name: str
    version: str
    sha256: str


def debian_component(name: str, version: str, sha256: str, platform: Platform) -> Component:
    """Return the component of a Debian package."""
    return Component(f"pkg:deb/debian/{name}@{version}?arch={platform.name}&distro=debian-12", name, version, sha256)


def wheel_component(name: str, version: str, sha256: str) -> Component:
    """Return the component of a wheel."""
    return Component(f"pkg:pypi/{name}@{version}", name, version, sha256)


def cyclonedx(image: str, digest: str, components: Iterable[Component]) -> dict[str, Any]:
    """Return the bill of materials. Its serial number follows from the image, so it is the same for the same image."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{image}@{digest}')}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "bom-ref": f"{image}@{digest}",
                "name": image,
                "version": digest,
                "hashes": [_hash(digest.removeprefix("sha256:"))],
            }
        },
        "components": [_component(each) for each in sorted(set(components))],
    }


def provenance(image: str, digest: str, source: str, inputs: Sequence[Component]) -> dict[str, Any]:
    """Return the statement that this program made the image, of which source and which files."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": image, "digest": {"sha256": digest.removeprefix("sha256:")}}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:toolmesh:deploy.images:v1",
                "externalParameters": {"image": image},
                "resolvedDependencies": [
                    {"uri": "git+toolmesh", "digest": {"gitCommit": source}},
                    *({"uri": each.purl, "digest": {"sha256": each.sha256}} for each in sorted(set(inputs))),
                ],
            },
            "runDetails": {"builder": {"id": "urn:toolmesh:deploy.images"}},
        },
    }


def _component(component: Component) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": component.purl,
        "purl": component.purl,
        "name": component.name,
        "version": component.version,
        "hashes": [_hash(component.sha256)],
    }


def _hash(sha256: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": sha256}
