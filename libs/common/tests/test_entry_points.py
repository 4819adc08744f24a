"""Parsing of entry points."""

from __future__ import annotations

import json

import pytest

from libs.common.entry_points import Command, Function, parse_command, parse_function


def test_a_function_is_parsed_into_pack_module_and_name() -> None:
    assert parse_function("textkit/words:statistics") == Function("textkit", "words", "statistics")
    assert parse_function("textkit/deep.er.words:f") == Function("textkit", "deep.er.words", "f")


@pytest.mark.parametrize(
    "entry_point",
    [
        "",
        "textkit/words",
        "textkit:words",
        "../textkit/words:f",
        "textkit/../os:system",
        "textkit/words:f.g",
        "textkit/words:__import__('os')",
        "Textkit/words:f",
        "textkit//words:f",
        "textkit/words:f\n",
        "textkit/.words:f",
        "textkit/words.:f",
    ],
)
def test_other_forms_are_not_a_function(entry_point: str) -> None:
    assert parse_function(entry_point) is None


def test_a_command_is_a_program_and_its_templates() -> None:
    assert parse_command('["/usr/bin/sort", "-r"]') == Command("/usr/bin/sort", ("-r",))
    assert parse_command('["pack:textkit/bin/a.py", "{x}"]') == Command("bin/a.py", ("{x}",), pack="textkit")


@pytest.mark.parametrize(
    "elements",
    [
        [],
        {},
        "ls",
        ["ls"],
        ["/bin/ls"],
        ["/usr/bin/../../etc/x"],
        ["/usr/bin/sub/x"],
        ["/usr/bin/"],
        ["/usr/sbin/chroot"],
        ["pack:textkit/../x"],
        ["pack:textkit/.hidden"],
        ["pack:textkit//x"],
        ["/usr/bin/sort", 1],
        ["/usr/bin/sort", "\0"],
        ["/usr/bin/sh", "-c", "echo {x}"],
        ["/usr/bin/bash"],
        ["/usr/bin/env", "sh"],
        # A line of some language with a value inside it is where injection comes from.
        ["/usr/bin/awk", "{x} print"],
        ["/usr/bin/python3", "-c", "print('{x}')"],
        ["/usr/bin/sort"] * 200,
    ],
)
def test_other_forms_are_not_a_command(elements: object) -> None:
    assert parse_command(json.dumps(elements)) is None


@pytest.mark.parametrize("entry_point", ["", "not json", '["/usr/bin/sort"', "\ud800"])
def test_invalid_json_is_not_a_command(entry_point: str) -> None:
    assert parse_command(entry_point) is None
