"""Admission rules for tools that are HTTP endpoints, and for what only they may declare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from libs.common.errors import Violation
from libs.common.url_template import UrlTemplate, UrlTemplateError, parse_url_template
from services.registry.domain.publishing.manifest import Manifest

_PATH = "manifest.execution.http"
# Only requests to a service are retried and watched.
_ONLY_HTTP = ("http", "retry_policy", "circuit_breaker")
# Calls of an upstream have a circuit, too.
_UPSTREAM_RUNNERS = frozenset({"mcp", "grpc", "websocket"})
_READING = frozenset({"get", "head", "post"})
_BODILESS = frozenset({"get", "head"})
_DEFAULT_PORTS = (80, 443)
# The connection itself needs these, or decides by them what follows.
CONNECTION_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# A credential is a secret, never an argument.
_CREDENTIAL_HEADERS = frozenset({"authorization", "cookie"})


def check_http_endpoint(manifest: Manifest) -> Iterator[Violation]:
    """Require a complete endpoint of an HTTP tool, and refuse one elsewhere."""
    runner = manifest.execution.get("runner")
    if runner != "http":
        for field in _ONLY_HTTP:
            if field in manifest.execution and not (field == "circuit_breaker" and runner in _UPSTREAM_RUNNERS):
                message = "is honoured for the runner http only; leave it out"
                yield Violation(f"manifest.execution.{field}", "field.not_honoured", message)
        return
    endpoint = manifest.execution.get("http")
    if endpoint is None:
        yield Violation(_PATH, "http.required", "is required for the runner http")
        return
    try:
        url = parse_url_template(str(endpoint.get("url", "")))
    except UrlTemplateError as error:
        yield Violation(f"{_PATH}.url", "http.url", str(error))
        return
    yield from _check_reach(manifest, url)
    yield from _check_failover(manifest, endpoint, url)
    yield from _check_method(manifest, endpoint)
    yield from _check_arguments(manifest, endpoint, url)
    yield from _check_headers(endpoint)


def _check_reach(manifest: Manifest, url: UrlTemplate) -> Iterator[Violation]:
    execution = manifest.execution
    policy = execution.get("network_policy", {})
    if execution.get("access_tier") not in ("network", "supervised") or policy.get("deny_all_egress"):
        yield Violation("manifest.execution.access_tier", "http.access", "must be network or supervised, with egress")
    yield from _check_policy(policy, url)
    if execution.get("entry_point"):
        yield Violation("manifest.execution.entry_point", "entry_point.form", "must be empty for the runner http")
    if execution.get("checkpoint", {}).get("enabled"):
        yield Violation("manifest.execution.checkpoint.enabled", "http.checkpoint", "is not possible for one request")


def _check_policy(policy: dict[str, Any], url: UrlTemplate) -> Iterator[Violation]:
    hosts = {str(host).lower() for host in policy.get("allowed_domains", ())}
    if url.host not in hosts and f"*.{url.host.partition('.')[2]}" not in hosts:
        message = f"does not name the host of the endpoint, {url.host}"
        yield Violation("manifest.execution.network_policy.allowed_domains", "http.host", message)
    if url.port not in (policy.get("allowed_ports") or _DEFAULT_PORTS):
        message = f"does not name the port of the endpoint, {url.port}"
        yield Violation("manifest.execution.network_policy.allowed_ports", "http.port", message)


def _check_failover(manifest: Manifest, endpoint: dict[str, Any], url: UrlTemplate) -> Iterator[Violation]:
    origins = {url.origin}
    for index, text in enumerate(endpoint.get("failover_origins", ())):
        path = f"{_PATH}.failover_origins[{index}]"
        try:
            other = parse_url_template(str(text))
        except UrlTemplateError as error:
            yield Violation(path, "http.url", str(error))
            continue
        if other.path != "/" or other.origin in origins:
            yield Violation(path, "http.failover", "is not another origin, such as https://eu.example.com")
        if other.scheme != url.scheme:
            yield Violation(path, "http.failover", f"does not begin with {url.scheme}:// as the endpoint does")
        origins.add(other.origin)
        yield from _check_policy(manifest.execution.get("network_policy", {}), other)


def _check_method(manifest: Manifest, endpoint: dict[str, Any]) -> Iterator[Violation]:
    method = endpoint.get("method")
    if not manifest.mutates and method not in _READING:
        yield Violation(f"{_PATH}.method", "http.method", "writes, but the mutation class is read_only")
    if method in _BODILESS and endpoint.get("body_argument"):
        yield Violation(f"{_PATH}.body_argument", "http.body", "is not possible: the method has no body")


def _check_arguments(manifest: Manifest, endpoint: dict[str, Any], url: UrlTemplate) -> Iterator[Violation]:
    schema = manifest.input.get("schema")
    properties = schema.get("properties", {}) if isinstance(schema, dict) else {}
    required = schema.get("required", ()) if isinstance(schema, dict) else ()
    named = [parameter.get("argument", "") for parameter in endpoint.get("parameters", ())]
    body = endpoint.get("body_argument", "")
    for name in url.placeholders:
        if name not in properties or name not in required:
            yield Violation(f"{_PATH}.url", "http.placeholder", f"{{{name}}} is not a required argument of the schema")
    for index, name in enumerate(named):
        if name not in properties:
            path = f"{_PATH}.parameters[{index}].argument"
            yield Violation(path, "http.argument", "is not a property of the input schema")
    if body and body not in properties:
        yield Violation(f"{_PATH}.body_argument", "http.argument", "is not a property of the input schema")
    places = Counter([*url.placeholders, *named, *([body] if body else [])])
    for name, count in places.items():
        if count > 1:
            yield Violation(_PATH, "http.argument_twice", f"{name} has more than one place")
    if body or endpoint.get("method") in _BODILESS:
        for name in properties.keys() - places.keys():
            yield Violation(_PATH, "http.argument_unplaced", f"{name} has no place in the request")


def _check_headers(endpoint: dict[str, Any]) -> Iterator[Violation]:
    names: list[tuple[str, str, bool]] = [
        (f"{_PATH}.parameters[{index}].name", str(each.get("name") or each.get("argument", "")), False)
        for index, each in enumerate(endpoint.get("parameters", ()))
        if each.get("place") == "header"
    ]
    names += [
        (f"{_PATH}.secrets[{index}].name", str(each.get("name", "")), True)
        for index, each in enumerate(endpoint.get("secrets", ()))
        if each.get("place") == "header"
    ]
    if endpoint.get("idempotency_header"):
        names.append((f"{_PATH}.idempotency_header", str(endpoint["idempotency_header"]), False))
    seen = set[str]()
    for path, name, is_secret in names:
        lowered = name.lower()
        if not lowered.replace("-", "").replace("_", "").isalnum() or not lowered.isascii():
            yield Violation(path, "http.header", "is not the name of a header")
        elif lowered in CONNECTION_HEADERS:
            yield Violation(path, "http.header", "is a header of the connection itself")
        elif lowered in _CREDENTIAL_HEADERS and not is_secret:
            yield Violation(path, "http.header", "carries a credential; name a secret for it")
        if lowered in seen:
            yield Violation(path, "http.header", "is set twice")
        seen.add(lowered)
