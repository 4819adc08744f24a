"""Inputs of the accepted sizes that are as expensive as possible, generated from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from buf.validate import validate_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from toolmesh.authz.v1 import capability_token_pb2 as tokens
from toolmesh.authz.v1 import policy_service_pb2 as policy_pb
from toolmesh.authz.v1 import token_service_pb2 as token_pb
from toolmesh.executor.v1 import executor_service_pb2 as executor_pb
from toolmesh.registry.v1 import tool_manifest_pb2 as mpb

from services.registry.tests.manifests import reader

ARGUMENT_BYTES = 256 * 1024
# Pieces that make finders of secrets, numbers, addresses and look-alikes work.
_PIECES = (
    "a", "1", " ", "12 34 ", "@", "a@b.c ", "--", "-u a:", "pass", "token=", "token=abc123xyz ", "bearer ", "eyJ",
    "eyJaaaaaaaaaaaa.", "://", "a://b:c@", "AKIA", "1.2.3.4 ", "a:", "1.", '[("', '["token","', "DE12 ", "+1 2",
    "phone ", "call 1", "1234\t", "4111-", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "0049 1", "sk-",
    "Ab0/", "\u0430", "a\u200b", "\n", ":", "ssn is 1", "key", "\u65e5", "%2e", "../", '"', "\\",
)  # fmt: skip
_MOST_DEPTH = 4
_LONGEST_LIST = 64


class Inputs:
    """A reproducible source of inputs."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def text(self, length: int) -> str:
        """Return a text of a few kinds of pieces."""
        pieces = self.random.sample(_PIECES, self.random.randint(1, 4))
        return "".join(self.random.choices(pieces, k=length // min(map(len, pieces)) + 1))[:length]

    def arguments(self) -> Iterator[tuple[str, bytes]]:
        """Yield arguments of echo, each close to the largest size."""
        choices: dict[str, Any] = {
            "one text": self.text(ARGUMENT_BYTES // 4),
            "many texts": [self.text(40) for _ in range(ARGUMENT_BYTES // 160)],
            "whole numbers": [self.random.randrange(10**12, 10**16) for _ in range(ARGUMENT_BYTES // 17)],
            "doubles": [self.random.random() * 10.0 ** self.random.randint(-300, 300) for _ in range(10_000)],
            "small lists": [[0]] * 40_000,
            "members": {f"{self.text(4)}{n}": n for n in range(ARGUMENT_BYTES // 16)},
            "secrets": {f"password{n}": self.text(12) for n in range(5_000)},
            "pairs": [["authorization", self.text(8)] for _ in range(9_000)],
        }
        for name, value in choices.items():
            yield name, json.dumps({"text": "n", "value": value}, ensure_ascii=False).encode()[: 1 << 21]
        yield "long text", json.dumps({"text": self.text(60_000)}, ensure_ascii=False).encode()
        yield "medium text", json.dumps({"text": self.text(7_500)}, ensure_ascii=False).encode()
        deep = '{"text":"n","value":' + "[" * 60 + "1" + "]" * 60 + "}"
        yield "deep", deep.encode()
        yield "broken", b'{"text":"' + b"a" * ARGUMENT_BYTES
        yield "undeclared", json.dumps({f"k{n}": 1 for n in range(20_000)}).encode()
        yield "doubled keys", b'{"text":"n",' + b",".join([b'"k:":1'] * 30_000) + b"}"

    def answers(self) -> Iterator[tuple[str, bytes]]:
        """Yield what a service may answer, each close to a limit of results."""
        choices: dict[str, Any] = {
            "texts": [self.text(200) for _ in range(40_000)],
            "long-text": self.text(8 << 20),
            "numbers": [self.random.randrange(10**12, 10**16) for _ in range(400_000)],
            "fractions": [self.random.random() * 10.0 ** self.random.randint(-300, 300) for _ in range(200_000)],
            "lists": [[0]] * 200_000,
            "names": {f"{self.text(4)}{n}": n for n in range(200_000)},
            "values": [0] * 600_000,
        }
        for name, value in choices.items():
            yield name, json.dumps({"value": value}, ensure_ascii=False).encode()
        yield "unfinished", b'{"value":["' + b'","'.join([b"a"] * 200_000)

    def groups(self) -> Iterator[tuple[str, executor_pb.InvokeGroupRequest]]:
        """Yield groups of 64 calls."""
        several = dict(self.arguments())
        for name in ("many texts", "small lists", "members", "medium text"):
            size = 3_000_000 // 64
            arguments = several[name] if len(several[name]) <= size else _shorter(several[name], size)
            call = executor_pb.InvokeRequest(tool="echo", arguments=arguments)
            calls = [
                executor_pb.GroupCall(request=call, depends_on=list(range(index)) if name == "members" else [])
                for index in range(64)
            ]
            yield f"group of {name}", executor_pb.InvokeGroupRequest(calls=calls)

    def batch(self) -> bytes:
        """Return a JSON-RPC batch of 50 entries that is close to the largest size."""
        call = {"tool": "echo", "arguments": {"text": "n", "value": [self.text(30) for _ in range(1_500)]}}
        entries = [{"jsonrpc": "2.0", "id": n, "method": "tools.invoke", "params": call} for n in range(50)]
        return json.dumps(entries).encode()

    def constraints(self) -> Iterator[tuple[str, token_pb.Part]]:
        """Yield parts of a token with constraints of many shapes."""
        wide = {"properties": {f"p{n}": {"type": "string", "pattern": "^[a-z]{1,20}$"} for n in range(60)}}
        listed = {"properties": {"value": {"items": {"anyOf": [{"type": "string"}, {"type": "array"}] * 8}}}}
        chosen = {"properties": {"text": {"enum": [self.text(10) for _ in range(200)]}}}
        scanned = {"properties": {"text": {"pattern": "(a|b|ab){1,30}c"}}}
        for name, schema in {"wide": wide, "listed": listed, "chosen": chosen, "scanned": scanned}.items():
            constraint = tokens.ArgumentConstraint(tool="*", schema=json.dumps(schema).encode())
            yield name, token_pb.Part(tools=[tokens.ToolGrant(tool="*")], argument_constraints=[constraint])
        grants = [tokens.ToolGrant(tool="*a" * 60 + str(n), version_constraint="^1.2 || ~2.3") for n in range(64)]
        yield "globs", token_pb.Part(tools=grants)
        yield "resources", token_pb.Part(resource_constraints=["file:" + "*a" * 200 + str(n) for n in range(64)])

    def policies(self) -> Iterator[tuple[str, policy_pb.ValidatePolicyRequest]]:
        """Yield policy texts."""
        rule = 'permit(principal, action, resource) when {{ context.arguments has "k{n}" }};\n'
        nested = "permit(principal, action, resource) when { " + "(" * 200 + "true" + ")" * 200 + " };"
        texts = {
            "many rules": "".join(rule.format(n=n) for n in range(600)),
            "nested": nested,
            "noise": self.text(50_000),
        }
        for name, text in texts.items():
            document = policy_pb.PolicyDocument(name="fuzzed", text=text)
            yield name, policy_pb.ValidatePolicyRequest(documents=[document])

    def manifests(self) -> Iterator[tuple[str, mpb.ToolManifest]]:
        """Yield manifests with large schemas and texts."""
        wide = {
            "type": "object",
            "properties": {f"p{n}": {"type": "string", "description": self.text(30)} for n in range(800)},
        }
        closed = {"type": "object", "additionalProperties": False}
        layered: dict[str, Any] = {**closed, "properties": {"x": {"type": "string"}}}
        for _ in range(25):
            layered = {
                **closed,
                "properties": {"a": layered, "b": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
            }
        referring = {
            "$ref": "#/$defs/a0",
            "$defs": {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
            | {"a40": {"type": "object"}},
        }
        for number, schema in enumerate((wide, layered, referring)):
            encoded = json.dumps(schema).encode()
            manifest = reader(f"fuzzed.tool{number}", description=self.text(3_000))
            manifest.input.schema = encoded
            yield f"manifest {number}", manifest

    def message(self, descriptor: Descriptor, depth: int = 0) -> Message:
        """Return a message of any type with every field filled up to its limits."""
        message = GetMessageClass(descriptor)()
        for field in descriptor.fields:
            if depth >= _MOST_DEPTH and field.message_type is not None:
                continue
            # A oneof holds the last field that is set; leaving fields out at random reaches all of them.
            if self.random.random() < 0.15:
                continue
            self._fill(message, field, depth)
        return message

    def _fill(self, message: Any, field: FieldDescriptor, depth: int) -> None:
        rules = field.GetOptions().Extensions[validate_pb2.field]
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return
        if field.is_repeated:
            most = min(rules.repeated.max_items or _LONGEST_LIST, _LONGEST_LIST if depth < 2 else 4)
            of_entries = rules.repeated.items
            values = [self._value(field, of_entries, depth) for _ in range(most)]
            getattr(message, field.name).extend(values)
        elif field.message_type is not None:
            getattr(message, field.name).CopyFrom(self._value(field, rules, depth))
        else:
            setattr(message, field.name, self._value(field, rules, depth))

    def _value(self, field: FieldDescriptor, rules: Any, depth: int) -> Any:
        if field.message_type is not None:
            if field.message_type.full_name.startswith("google.protobuf."):
                return GetMessageClass(field.message_type)()
            return self.message(field.message_type, depth + 1)
        if field.type == FieldDescriptor.TYPE_STRING:
            return self.text(min(rules.string.max_len or 1024, 8192)).encode("utf-8", "replace").decode()
        if field.type == FieldDescriptor.TYPE_BYTES:
            size = min(rules.bytes.max_len or 65_536, 65_536)
            return json.dumps({"properties": {"a": {"const": self.text(size // 4)}}}).encode()[:size]
        if field.enum_type is not None:
            return self.random.choice(field.enum_type.values).number
        if field.type == FieldDescriptor.TYPE_BOOL:
            return self.random.random() < 0.5
        return self.random.choice((0, 1, 50, 1000))


def _shorter(arguments: bytes, size: int) -> bytes:
    value = json.loads(arguments)["value"]
    entries = list(value.items()) if isinstance(value, dict) else value
    kept = entries[: max(1, len(entries) * size // (2 * len(arguments)))]
    return json.dumps({"text": "n", "value": dict(kept) if isinstance(value, dict) else kept}).encode()
