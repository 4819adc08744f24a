"""Conversions of the namespace service."""

from __future__ import annotations

from toolmesh.registry.v1 import namespace_service_pb2 as pb

from services.registry.convert.shared import timestamp
from services.registry.domain.namespaces.namespaces import NamespacePage
from services.registry.domain.namespaces.ownership import Namespace


def namespace(domain_namespace: Namespace) -> pb.Namespace:
    return pb.Namespace(
        name=domain_namespace.name,
        provider=domain_namespace.provider,
        owner=domain_namespace.owner,
        delegates=domain_namespace.delegates,
        create_time=timestamp(domain_namespace.create_time),
        update_time=timestamp(domain_namespace.update_time),
        etag=domain_namespace.etag,
    )


def list_response(page: NamespacePage) -> pb.ListNamespacesResponse:
    return pb.ListNamespacesResponse(
        namespaces=[namespace(item) for item in page.namespaces], next_page_token=page.next_token
    )
