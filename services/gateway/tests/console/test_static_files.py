"""Static files are those that were vendored and written, under URLs that change with them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from services.gateway.console.static_files import PREFIX, StaticFiles

VENDOR = Path("services/gateway/console/static/vendor")


def test_vendored_files_are_unchanged_and_licensed(repository: Path) -> None:
    sums = (repository / VENDOR / "SHA256SUMS").read_text().split()
    files = dict(zip(sums[1::2], sums[0::2], strict=True))
    assert files.keys() == {file.name for file in (repository / VENDOR).glob("*.js")}
    for name, digest in files.items():
        assert hashlib.sha256((repository / VENDOR / name).read_bytes()).hexdigest() == digest
        assert (repository / VENDOR / f"LICENSE.{name.removesuffix('.min.js')}").is_file()


def test_a_url_names_the_content(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("a {}")
    (tmp_path / "secret.txt").write_text("no")
    first = StaticFiles(tmp_path).url("a.css")
    (tmp_path / "a.css").write_text("b {}")
    files = StaticFiles(tmp_path)
    assert files.url("a.css") != first
    assert files.get(first) is None
    response = files.get(files.url("a.css"))
    assert response is not None
    assert (response.body, response.content_type) == (b"b {}", b"text/css; charset=utf-8")
    assert files.get(PREFIX + "../config.py") is None


def test_no_page_has_inline_scripts_or_styles(repository: Path) -> None:
    """The content security policy would block them."""
    for template in (repository / "services/gateway/console/templates").rglob("*.html"):
        text = template.read_text()
        assert "<style" not in text
        assert " style=" not in text
        assert "<script>" not in text
        assert re.search(r"\son[a-z]+=", text) is None
