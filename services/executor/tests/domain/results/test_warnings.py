"""What a caller is warned of beside its result."""

from __future__ import annotations

from services.executor.domain.results.warnings import LOOK_ALIKE, warnings_of
from services.executor.domain.tool import ToolTrust
from services.executor.tests.samples import a_tool


def test_the_newer_of_two_similar_tools_names_the_older() -> None:
    [warning] = warnings_of(a_tool(trust=ToolTrust(taken_for=("tools/globex.send_email",))))
    assert (warning.code, warning.resource) == (LOOK_ALIKE, "tools/globex.send_email")


def test_other_tools_warn_of_nothing() -> None:
    assert warnings_of(a_tool()) == ()
