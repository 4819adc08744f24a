"""Every attribute that the registry admits fits into an authz request."""

from __future__ import annotations

import pytest
from toolmesh.registry.v1 import tool_manifest_pb2 as pb
from toolmesh.registry.v1.tool_version_pb2 import ToolVersion

from libs.authz_client.tool_attributes import tool_attributes
from libs.common.errors import MeshError, Reason
from libs.common.rpc.validation.validate import validate


def test_whatever_a_manifest_may_say_of_permissions_can_be_told() -> None:
    permission = pb.PermissionProfile(
        required_permissions=[f"a:{place:0510}" for place in range(64)],
        required_scopes=[f"s{place:0127}" for place in range(32)],
        result_labels=[f"l{place:063}" for place in range(16)],
        impact_scope=10,
    )
    validate(permission)
    name = "tools/" + "n" * 63 + "." + "t" * 255 + "/versions/1.0.0-" + "a" * 122
    manifest = pb.ToolManifest(
        permission=permission, mutation_class=pb.MUTATION_CLASS_READ_ONLY, tags=[f"{place:064}" for place in range(32)]
    )
    validate(tool_attributes(ToolVersion(name=name, digest="sha256:" + "0" * 64, manifest=manifest)))


@pytest.mark.parametrize("label", ["l" * 65, "", "Confidential", "a b", "a\0b"])
def test_a_label_that_could_not_be_told_or_kept_is_not_admitted(label: str) -> None:
    with pytest.raises(MeshError) as caught:
        validate(pb.PermissionProfile(result_labels=[label]))
    assert caught.value.reason is Reason.INVALID_REQUEST
