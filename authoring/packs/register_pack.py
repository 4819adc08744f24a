"""Registers the tools of a pack: a changed contract, or other code, gets the next version that is legal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from toolmesh.common.v1.error_table import Reason
from toolmesh.registry.v1.registry_service_pb2 import GetToolRequest, RegisterToolRequest
from toolmesh.registry.v1.registry_service_pb2_grpc import RegistryServiceStub
from toolmesh.registry.v1.tool_manifest_pb2 import ToolManifest
from toolmesh_sdk._wire.transport import Transport
from toolmesh_sdk.errors import ToolmeshError
from toolmesh_sdk.manifests.parse import manifest_from
from toolmesh_sdk.manifests.references import by_tool, lacks_reference, named_manifests

from libs.common.semver import Version


class PackRegistry:
    """Registers manifests as they are or, where their version has other content, under the next one."""

    def __init__(self, transport: Transport, finish: Callable[[ToolManifest], None] = lambda _: None) -> None:
        """`finish` completes each manifest under the version that is tried."""
        self._transport, self._stub = transport, RegistryServiceStub(transport.channel)
        self._finish = finish
        self._known: dict[str, ToolManifest] = {}
        self._beside = set[str]()

    def expect(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """Take the manifests of the pack. A tool is registered with those that it names and that are missing."""
        self._known = by_tool(manifest_from(dict(document)) for document in documents)

    def register(self, document: Mapping[str, Any]) -> tuple[str, bool]:
        """Return the resource name of the version, and whether it is new. Raises ToolmeshError."""
        manifest = manifest_from(dict(document))
        try:
            return self._register(manifest)
        except ToolmeshError as error:
            if error.reason is not Reason.TOOL_VERSION_CONFLICT:
                raise
        newest = self._newest(f"{manifest.namespace}.{manifest.tool_id}")
        if _content(newest.manifest) == _content(manifest):
            return newest.name, False
        return self._register_next(manifest, Version.parse(newest.manifest.version))

    def _register_next(self, manifest: ToolManifest, version: Version) -> tuple[str, bool]:
        refusal: ToolmeshError | None = None
        for candidate in next_versions(version):
            manifest.version = str(candidate)
            try:
                return self._register(manifest)
            except ToolmeshError as error:
                if not any(violation.rule.startswith("version.") for violation in error.violations):
                    raise
                refusal = error
        assert refusal is not None
        raise refusal

    def _register(self, manifest: ToolManifest) -> tuple[str, bool]:
        self._finish(manifest)
        request = RegisterToolRequest(manifest=manifest)
        try:
            answer = self._transport.unary(self._stub.RegisterTool, request, None, repeatable=True)
        except ToolmeshError as error:
            named = named_manifests(manifest, self._known)
            if not named or not lacks_reference(error):
                raise
            for other in named:
                self._finish(other)
            request.beside.extend(named)
            answer = self._transport.unary(self._stub.RegisterTool, request, None, repeatable=True)
        self._beside.update(version.name for version in answer.beside)
        return str(answer.version.name), bool(answer.created) or answer.version.name in self._beside

    def _newest(self, tool: str) -> Any:
        return self._transport.unary(self._stub.GetTool, GetToolRequest(name=tool), None, repeatable=True).versions[0]


def next_versions(version: Version) -> Iterator[Version]:
    """Yield the next patch, minor and major version: a registry accepts the first that the change allows."""
    major, minor, patch = version.core
    yield Version(major, minor, patch + 1)
    yield Version(major, minor + 1, 0)
    yield Version(major + 1, 0, 0)


def _content(manifest: ToolManifest) -> bytes:
    other = ToolManifest()
    other.CopyFrom(manifest)
    other.ClearField("version")
    if other.HasField("provenance"):
        # The same code is the same content, at whichever revision it was signed.
        other.provenance.ClearField("revision")
        other.provenance.ClearField("signature")
    return other.SerializeToString(deterministic=True)
