"""Paths, URLs and commands: taken as they are, or refused by name."""

from __future__ import annotations

import posixpath
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.executor.domain.arguments.hosts import Hosts
from services.executor.domain.arguments.injection_policies import (
    command_problem,
    path_problem,
    policies_of,
    url_problem,
)
from services.executor.domain.tool import Confinement

VOLUMES = frozenset({"reports", "inbox"})
HOSTS, PORTS = ("api.example.com", "*.cdn.example.com", "10.1.2.3"), (80, 443)


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("report.txt", ""),
        ("a/../b", ""),
        ("./a//b", ""),
        ("", ""),
        ("..a/b..", ""),
        ("50%25.txt", ""),
        ("/volumes/reports/50%25.txt", ""),
        ("/volumes/reports/a", ""),
        ("/volumes/reports", ""),
        ("//volumes/./inbox/x/../y", ""),
        ("..", "path.leaves"),
        ("a/../../b", "path.leaves"),
        ("/../etc/passwd", "path.leaves"),
        ("..\\..\\windows", "path.leaves"),
        ("%2e%2e/etc", "path.leaves"),
        ("..%2f..%2fetc", "path.leaves"),
        ("/etc/passwd", "path.outside"),
        ("%2fetc%2fpasswd", "path.outside"),
        ("/volumes/reports/%2e%2e/%2e%2e/etc/passwd", "path.outside"),
        ("/volumes/reports/..%2fother/a", "path.outside"),
        ("/volumes/other/a", "path.outside"),
        ("/volumes", "path.outside"),
        ("/volumes/reports/../other/a", "path.outside"),
        ("/volumes/reports/../../etc", "path.outside"),
        ("/volumesreports/a", "path.outside"),
        ("\\\\server\\share", "path.outside"),
        ("a\0b", "path.form"),
        ("a%00b", "path.form"),
        ("a" * 4097, "path.form"),
        (7, "path.form"),
        ({"a": 1}, "path.form"),
    ],
)
def test_a_path_stays_where_it_may_be(path: Any, rule: str) -> None:
    found = path_problem(path, VOLUMES)
    assert (found[0] if found else "") == rule


def test_without_volumes_no_absolute_path_is_taken() -> None:
    assert path_problem("/volumes/reports/a", frozenset()) is not None
    assert path_problem("a", frozenset()) is None


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("https://api.example.com/a?b=c#d", ""),
        ("HTTPS://API.EXAMPLE.COM", ""),
        ("http://api.example.com:443/", ""),
        ("https://a.cdn.example.com/é", ""),
        ("https://cdn.example.com/", "url.host"),
        ("https://a.b.cdn.example.com/", "url.host"),
        ("https://evil.com/api.example.com", "url.host"),
        ("https://api.example.com.evil.com/", "url.host"),
        ("https://apiXexample.com/", "url.host"),
        ("https://localhost/", "url.host"),
        ("https://api.example.com:8443/", "url.port"),
        ("https://api.example.com:99999/", "url.port"),
        ("ftp://api.example.com/", "url.scheme"),
        ("file:///etc/passwd", "url.scheme"),
        ("https://alice:pw@api.example.com/", "url.login"),
        ("https://api.example.com@evil.com/", "url.login"),
        ("https://127.0.0.1/", "url.address"),
        ("https://10.1.2.3/", "url.address"),
        ("https://2130706433/", "url.address"),
        ("https://0x7f.1/", "url.address"),
        ("https://0x7f000001/", "url.address"),
        ("https://127.1/", "url.address"),
        ("https://[::1]/", "url.address"),
        ("https://[::ffff:127.0.0.1]:443/", "url.address"),
        ("https://169.254.169.254/latest/meta-data", "url.address"),
        ("https://api.example.com./", "url.form"),
        ("https://api.example.com:/", "url.form"),
        ("https://api.example.com:4x/", "url.form"),
        ("https://api%2eexample.com/", "url.form"),
        ("https://ａpi.example.com/", "url.form"),
        ("https:///a", "url.form"),
        ("https://", "url.form"),
        ("//api.example.com/", "url.form"),
        ("api.example.com", "url.form"),
        ("javascript:alert(1)", "url.form"),
        (" https://api.example.com/", "url.form"),
        ("https://api.example.com\\@evil.com/", "url.form"),
        ("https://api.example.com/\r\nHost: evil.com", "url.form"),
        ("https://api.example.com/" + "a" * 9000, "url.form"),
        (7, "url.form"),
    ],
)
def test_a_url_names_a_host_of_the_tool(url: Any, rule: str) -> None:
    found = url_problem(url, Hosts(HOSTS), PORTS)
    assert (found[0] if found else "") == rule


def test_a_tool_that_reaches_nothing_takes_no_url() -> None:
    assert url_problem("https://api.example.com/", Hosts(()), PORTS) is not None


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        (["grep", "-r", "; rm -rf /"], ""),
        ("grep -r x", "command.form"),
        ([], "command.form"),
        (["grep", 7], "command.form"),
        ([["grep"]], "command.form"),
        (["grep", "a\0b"], "command.form"),
        ([""], "command.program"),
        (["--version"], "command.program"),
    ],
)
def test_one_text_is_never_a_command(command: Any, rule: str) -> None:
    found = command_problem(command)
    assert (found[0] if found else "") == rule


def test_policies_speak_about_the_places_that_the_manifest_names() -> None:
    confinement = Confinement(hosts=("api.example.com",), reads=("reports",), writes=("inbox",))
    matchers = [("path", "/files/*"), ("path", "/more"), ("url", "/at"), ("command", "/run"), ("resource", "/files")]
    arguments = {
        "files": ["/volumes/inbox/a", "/etc/shadow"],
        "more": ["ok", "../no", None],
        "at": "http://evil.com",
        "run": "rm -rf /",
        "note": "../../and nothing about it",
    }
    found = [(each.path, each.rule) for rule in policies_of(matchers, confinement) for each in rule(arguments)]
    assert found == [
        ("/files/1", "path.outside"),
        ("/more/1", "path.leaves"),
        ("/at", "url.host"),
        ("/run", "command.form"),
    ]
    assert [each for rule in policies_of(matchers, confinement) for each in rule({})] == []


def test_no_violation_repeats_what_was_sent() -> None:
    secret = "https://alice:hunter2@evil.com"
    for rule in policies_of([("url", "/u")], Confinement()):
        assert all("hunter2" not in each.message for each in rule({"u": secret}))


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(["..", ".", "", "a", "volumes", "reports", "other"]), max_size=8), st.booleans())
def test_what_is_taken_resolves_to_where_it_may_be(steps: list[str], absolute: bool) -> None:
    """By another way of reckoning than the policy's own."""
    path = ("/" if absolute else "") + "/".join(steps)
    if path_problem(path, VOLUMES) is not None:
        return
    resolved = posixpath.normpath(path)
    if path.startswith("/"):
        # Two slashes at the beginning are kept by the standard, and mean one.
        volumes, volume, *_ = resolved.lstrip("/").split("/")
        assert (volumes, volume in VOLUMES) == ("volumes", True)
    else:
        assert not resolved.startswith("..")
