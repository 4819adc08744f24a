"""Tool manifests as documents that people write: their defaults, their form and their JSON Schema."""

from __future__ import annotations

from toolmesh_sdk.manifests.parse import manifest_from

__all__ = ["manifest_from"]
