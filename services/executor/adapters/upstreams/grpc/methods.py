"""Lists the methods of gRPC services from their descriptors, each as a definition that stands alone. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

from libs.common.json.jsonio import dump
from services.executor.adapters.upstreams.grpc.message_schema import MessageSchemas, SchemaTooLargeError

MAX_METHODS, MAX_DEFINITION_BYTES = 2048, 64 * 1024
_IDEMPOTENCY = {1: "no_side_effects", 2: "idempotent"}
# They describe the server, not what it is for.
INFRASTRUCTURE = ("grpc.reflection.", "grpc.channelz.")


class DescriptorProblemError(Exception):
    """Descriptors cannot be used. The text says why, in words of ours."""


@dataclass(frozen=True, slots=True)
class Method:
    """One method: its definition as JSON, or the reason why it has none."""

    name: str
    """`package.Service/Method`."""
    descriptor: MethodDescriptor
    definition: bytes = b""
    problem: str = ""


def build_pool(files: Sequence[descriptor_pb2.FileDescriptorProto]) -> DescriptorPool:
    """Return a pool of these files, which may come in any order. Raises DescriptorProblemError."""
    pool, waiting = DescriptorPool(), {file.name: file for file in files}
    added: set[str] = set()
    while waiting:
        ready = [file for file in waiting.values() if added.issuperset(file.dependency)]
        if not ready:
            raise DescriptorProblemError("the descriptors lack a file that they import")
        for file in ready:
            try:
                pool.Add(file)
            except (TypeError, ValueError):
                raise DescriptorProblemError("the descriptors contradict themselves") from None
            added.add(file.name)
            del waiting[file.name]
    return pool


def describe_methods(pool: DescriptorPool, services: Iterable[str], selection: Sequence[str]) -> dict[str, Method]:
    """Return the chosen methods of services. Raises DescriptorProblemError."""
    methods: dict[str, Method] = {}
    for name in services:
        if name.startswith(INFRASTRUCTURE):
            continue
        try:
            service = pool.FindServiceByName(name)
        except KeyError:
            raise DescriptorProblemError("the descriptors lack a service that the server names") from None
        for descriptor in service.methods:
            full = f"{name}/{descriptor.name}"
            if selection and not any(fnmatchcase(each, pattern) for each in (full, name) for pattern in selection):
                continue
            if len(methods) >= MAX_METHODS:
                raise DescriptorProblemError(f"the server has more than {MAX_METHODS} methods; select some")
            methods[full] = _describe(full, descriptor)
    if not methods:
        raise DescriptorProblemError("the server has no method, or none that was selected")
    return methods


def _describe(name: str, method: MethodDescriptor) -> Method:
    arguments, results = MessageSchemas(closed=True), MessageSchemas(closed=False)
    try:
        definition: dict[str, Any] = {
            "method": name,
            "client_streaming": method.client_streaming,
            "server_streaming": method.server_streaming,
            "idempotency": _IDEMPOTENCY.get(method.GetOptions().idempotency_level, ""),
            "input": arguments.describe(method.input_type),
            "output": results.describe(method.output_type),
        }
    except SchemaTooLargeError:
        return Method(name, method, problem="its messages hold too many other messages")
    parts = {**arguments.messages, **results.messages}
    definition["descriptor"] = _digest([method.input_type, method.output_type, *parts.values()])
    encoded = dump(definition)
    if len(encoded) > MAX_DEFINITION_BYTES:
        return Method(name, method, problem=f"its definition has more than {MAX_DEFINITION_BYTES} bytes")
    return Method(name, method, encoded)


def _digest(messages: Iterable[Descriptor]) -> str:
    """Return the digest of messages as they travel: the numbers of fields too, which schemas do not show."""
    forms = set()
    for message in messages:
        proto = descriptor_pb2.DescriptorProto()
        message.CopyToProto(proto)
        forms.add(message.full_name.encode() + b"\0" + proto.SerializeToString(deterministic=True))
    return f"sha256:{hashlib.sha256(b''.join(sorted(forms))).hexdigest()}"
