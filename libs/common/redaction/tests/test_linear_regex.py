"""Patterns from outside: what they may contain, and that no text makes them slow."""

from __future__ import annotations

import pytest

from libs.common.redaction.linear_regex import PatternError, compile_linear
from libs.common.redaction.rules import RuleError, read_rules


@pytest.mark.parametrize(
    ("pattern", "matches", "refuses"),
    [
        ("EMP-[0-9]{6}", "EMP-123456", "EMP-12345"),
        (r"\b[A-Z]{2}\d{3,5}\b", "AB1234", "A1234"),
        ("(foo|bar|bazaar)-x", "bazaar-x", "baz-x"),
        (r"(ab?c){2,3}\.\d", "abcac.7", "abc.7"),
        ("[^a-z]{3}", "A-1", "abc"),
        (r"[\w-]{4}\s", "a-_1 ", "a-_1"),
        ("ünï{2}", "ünïï", "ünï"),
        (r"a.c\(d\)", "abc(d)", "ac(d)"),
    ],
)
def test_the_language_is_the_usual_one(pattern: str, matches: str, refuses: str) -> None:
    compiled = compile_linear(pattern)
    assert compiled.fullmatch(matches)
    assert not compiled.fullmatch(refuses)


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "a+",
        "abc*",
        "(a+)+b",
        "(?=abc)abc",
        r"(abc)\1",
        "abc{2",
        "abc)",
        "(abc",
        "[abc",
        "abc$",
        "^abc",
        "a?b?c?",
        "a{5,2}bcd",
        "(((((((((abc)))))))))",
        "[a-z]{300}",
        "((abc){20}){20}",
        r"\babc\b{2}",
        r"\pL{3}",
        "a" * 201,
        "abc{0}def{0,0}",
    ],
)
def test_what_could_be_slow_or_is_not_understood_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        compile_linear(pattern)


@pytest.mark.parametrize(
    "pattern", ["(a|a|ab){3,60}c", "(a{2,8}){2,8}b", "([a-z]{1,9}[a-z]{1,9}){1,8}!!", "(x?x?x?){20}yyy"]
)
def test_patterns_that_would_go_back_for_ever_do_not(pattern: str) -> None:
    assert compile_linear(pattern).search("a" * 20_000 + "x" * 20_000) is None


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"unknown": 1},
        {"fields": "name"},
        {"fields": [""]},
        {"fields": ["x"] * 65},
        {"fields": ["--"]},
        {"patterns": {}},
        {"patterns": [{"kind": "a", "pattern": "abc"}]},
        {"patterns": [{"kind": "A B", "pattern": "abc", "example": "abc"}]},
        {"patterns": [{"kind": "a", "pattern": "abc", "example": "abd"}]},
        {"patterns": [{"kind": "a", "pattern": "[A-Z]{1,5}X", "example": "ABCX"}]},
        {"patterns": [{"kind": "a", "pattern": "a+", "example": "aaa"}]},
        {"patterns": [{"kind": "a", "pattern": "abc", "example": "abc"}] * 33},
        {"ip_addresses": "yes"},
    ],
)
def test_rules_that_cannot_be_used_are_refused_when_they_are_read(document: object) -> None:
    with pytest.raises(RuleError):
        read_rules(document)
