"""What commands about packs print."""

from __future__ import annotations

from pathlib import Path

import pytest

from authoring.pack_commands.problems import print_problems, print_secrets
from authoring.packs.pack_problem import PackProblem


def test_problems_go_to_stderr_and_what_a_pack_needs_to_stdout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    print_problems([PackProblem(tmp_path / "kit" / "tools.py", 7, "is wrong")])
    print_secrets({"crm": "toolmesh secrets set crm --namespace acme"})
    printed = capsys.readouterr()
    assert printed.err == "kit/tools.py:7: is wrong\n"
    assert printed.out == "needs secret://crm: toolmesh secrets set crm --namespace acme\n"
