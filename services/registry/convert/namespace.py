"""Conversions of the namespace service."""

from __future__ import annotations

from toolmesh.registry.v1 import namespace_service_pb2 as pb

from services.registry.convert.shared import timestamp
from services.registry.domain.namespaces.namespaces import NamespacePage
from services.registry.domain.namespaces.ownership import Namespace


def namespace(found: Namespace) -> pb.Namespace:
    return pb.Namespace(
        name=found.name,
        provider=found.provider,
        owner=found.owner,
        delegates=found.delegates,
        create_time=timestamp(found.create_time),
        update_time=timestamp(found.update_time),
        etag=found.etag,
    )


def listed(page: NamespacePage) -> pb.ListNamespacesResponse:
    return pb.ListNamespacesResponse(
        namespaces=[namespace(each) for each in page.namespaces], next_page_token=page.next_token
    )
