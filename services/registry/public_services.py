"""The services of the whole mesh that callers reach through the edge; reflection describes them.

The registry is the catalogue, so the edge routes reflection here. A service that has no method for callers is absent.
Importing the stubs puts their descriptors into the pool that reflection reads.
"""

from __future__ import annotations

from types import ModuleType

from toolmesh.approval.v1 import approval_service_pb2
from toolmesh.audit.v1 import audit_service_pb2, log_service_pb2, usage_service_pb2
from toolmesh.authz.v1 import policy_service_pb2, token_service_pb2
from toolmesh.executor.v1 import executor_service_pb2, invocation_service_pb2, key_service_pb2, tool_log_service_pb2
from toolmesh.registry.v1 import (
    discovery_service_pb2,
    lifecycle_service_pb2,
    namespace_service_pb2,
    registry_service_pb2,
    trust_service_pb2,
)

_FILES: tuple[ModuleType, ...] = (
    approval_service_pb2,
    audit_service_pb2,
    log_service_pb2,
    usage_service_pb2,
    policy_service_pb2,
    token_service_pb2,
    executor_service_pb2,
    invocation_service_pb2,
    key_service_pb2,
    tool_log_service_pb2,
    discovery_service_pb2,
    lifecycle_service_pb2,
    namespace_service_pb2,
    registry_service_pb2,
    trust_service_pb2,
)
PUBLIC_SERVICES = tuple(service.full_name for file in _FILES for service in file.DESCRIPTOR.services_by_name.values())
