"""Hostile manifests, each with a name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toolmesh.registry.v1 import tool_manifest_pb2 as pb

from libs.common.json.jsonio import dump
from services.registry.tests.manifests import INPUT, reader

DEEP = 5_000


def _with(schema: bytes | dict[str, Any], *, arguments: bytes = b"", side: str = "output") -> pb.ToolManifest:
    message = reader()
    part: Any = getattr(message, side)
    part.schema = schema if isinstance(schema, bytes) else dump(schema)
    if side == "output" and not arguments:
        message.input.examples[0].ClearField("result")
    if arguments:
        message.input.examples[0].arguments = arguments
    return message


def hostile_manifests() -> Iterator[tuple[str, pb.ToolManifest]]:
    """Yield all hostile manifests."""
    yield from _nesting()
    yield from _sizes()
    yield from _patterns()
    yield from _texts()
    yield from _references()


def _nesting() -> Iterator[tuple[str, pb.ToolManifest]]:
    yield "arrays in arrays", _with(b"[" * DEEP + b"]" * DEEP)
    yield "objects in objects", _with(b'{"properties":{"a":' * 1000 + b"{}" + b"}}" * 1000)
    yield "arguments in arguments", _with(INPUT, arguments=b'{"text":' * DEEP + b"1" + b"}" * DEEP, side="input")
    deepest: dict[str, Any] = {}
    for _ in range(29):
        deepest = {"not": {"items": deepest}}
    yield "as deep as is allowed", _with({"type": "object", **deepest})


def _sizes() -> Iterator[tuple[str, pb.ToolManifest]]:
    yield "ten thousand properties", _with({"type": "object", "properties": {f"p{n}": {} for n in range(10_000)}})
    yield (
        "ten thousand properties of the input",
        _with({"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(10_000)}}, side="input"),
    )
    yield "ten thousand parts of allOf", _with({"type": "object", "allOf": [{"minProperties": 0}] * 10_000})
    yield "ten thousand parts of anyOf", _with({"type": "object", "anyOf": [{}] * 10_000})
    yield "ten thousand parts of oneOf", _with({"oneOf": [{"required": [f"p{n}"]} for n in range(10_000)]})
    yield "a huge enum", _with({"enum": [f"value number {n}" for n in range(10_000)]})
    yield "a huge enum of objects", _with({"enum": [{"a": [n] * 5} for n in range(5_000)]})
    yield "ten thousand required", _with({"type": "object", "required": [f"p{n}" for n in range(20_000)]})
    yield "ten thousand patterns", _with({"patternProperties": {f"^p{n}[a-z]+$": {} for n in range(6_000)}})
    yield (
        "dependencies on dependencies",
        _with(
            {"type": "object", "dependentRequired": {f"p{n}": [f"p{n + 1}"] for n in range(6_000)}, "required": ["p0"]}
        ),
    )
    chain = {f"p{n}": {"required": [f"p{n + 1}"]} for n in range(2_000)}
    yield "schemas that bring in schemas", _with({"type": "object", "dependentSchemas": chain, "required": ["p0"]})
    yield "a schema past its limit", _with(b'{"description":"' + b"a" * 300_000 + b'"}')
    yield "a manifest past its limit", _annotated({f"k{n}": "x" * 50_000 for n in range(60)})


def _patterns() -> Iterator[tuple[str, pb.ToolManifest]]:
    bombs = [
        "^(a+)+$", "(a*)*b", "(a|a)*$", "(.*a){25}", "^(([a-z])+.)+[A-Z]([a-z])+$", "((a{500}){500}){500}",
        "(?=(a+)+$)b", "(a+)\\1+$", "(" * 500 + "a" + ")" * 500, "a" * 60_000, "[" + "a-z" * 20_000 + "]",
        "(?:a?){5000}a{5000}", "\\p{L}{1000}", "(",
    ]  # fmt: skip
    for number, pattern in enumerate(bombs):
        schema = {
            "type": "object",
            "properties": {"text": {"type": "string", "pattern": pattern}},
            "required": ["text"],
        }
        yield f"regex bomb {number}", _with(schema, arguments=dump({"text": "a" * 5_000 + "!"}), side="input")
    names = {
        "type": "object",
        "patternProperties": {bomb: {} for bomb in bombs[:5]},
        "properties": {"a" * 200 + "!": {}},
    }
    yield "regex bombs for names", _with(names)


def _texts() -> Iterator[tuple[str, pb.ToolManifest]]:
    yield "a null character", _with(dump({"type": "object", "properties": {"a\0b": {"description": "\0"}}}))
    yield "an escaped null character", _with(b'{"type":"object","title":"\\u0000"}')
    yield "duplicate keys", _with(b'{"type":"object","type":"object"}')
    yield "keys that are the same when read", _with(b'{"type":"object","t\\u0079pe":"string"}')
    yield "a lone surrogate", _with(b'{"type":"object","title":"\\ud800"}')
    yield "bytes that are no text", _with(b'{"type":"object","title":"\xff\xfe"}')
    yield "no JSON at all", _with(b"\x00\x01\x02")
    yield "NaN", _with(b'{"minimum":NaN}')
    yield "a huge number", _with(b'{"minimum":1e999}')
    yield "a long integer", _with(b'{"minimum":' + b"9" * 5_000 + b"}")
    yield "a long fraction", _with(b'{"type":"number","multipleOf":0.' + b"0" * 300 + b"1}")
    yield "extreme numbers", _with({"type": "number", "minimum": -1.7e308, "maximum": 1.7e308, "multipleOf": 5e-324})
    yield "a negative limit", _with({"type": "string", "minLength": -1})
    yield "types that are none", _with({"type": ["string", "string", 5]})
    yield "combining marks", _described("a" + "\u0301" * 1_900)
    yield "right to left", _described("\u202e" * 500)
    yield "tags", _described("Finds orders." + "".join(chr(0xE0000 + n) for n in range(32, 127)))
    yield "a path of dots", _described("/etc/passwd ../../../../etc/passwd")


def _references() -> Iterator[tuple[str, pb.ToolManifest]]:
    yield "a reference to itself", _with({"$ref": "#"})
    yield "all of itself", _with({"type": "object", "allOf": [{"$ref": "#"}]})
    yield "not itself", _with({"type": "object", "not": {"$ref": "#"}})
    yield "a circle", _with({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})
    doubling = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(60)}
    yield "references that double", _with({"$ref": "#/$defs/a0", "$defs": {**doubling, "a60": {}}})
    chain = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(4_000)}
    yield "a long chain", _with({"$ref": "#/$defs/a0", "$defs": {**chain, "a4000": {}}})
    yield "a file", _with({"$ref": "file:///etc/passwd"})
    yield "an address", _with({"$ref": "http://169.254.169.254/latest/meta-data"})
    yield "a remote identity", _with({"$id": "http://example.com/x", "$ref": "other.json"})
    yield "another dialect", _with({"$schema": "http://example.com/dialect", "type": "object"})
    yield "a pointer into nothing", _with({"$ref": "#/a~2b/%zz/~"})
    yield "a dynamic reference", _with({"$dynamicAnchor": "x", "items": {"$dynamicRef": "#x"}})


def _annotated(annotations: dict[str, str]) -> pb.ToolManifest:
    message = reader()
    message.annotations.update(annotations)
    return message


def _described(text: str) -> pb.ToolManifest:
    message = reader()
    message.description = f"Finds an order. {text}"[:2000]
    return message
