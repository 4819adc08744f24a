"""The console in a real browser: a call needs approval, the open page shows it, a person decides, the call goes on.

Screenshots of every page, at desk and phone width, are left in build/screenshots.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.executors.shredding import MANIFESTS, SHRED, register_shred_report
from tests.harness.mesh import Mesh, cli, running_mesh
from tools.find_chromium import find_chromium

pytestmark = pytest.mark.browser
ALICE, BOB = "did:web:example.com:users:alice", "did:web:example.com:users:bob"
SCREENSHOTS = Path("build/screenshots")
SIZES = {"desk": {"width": 1280, "height": 860}, "phone": {"width": 390, "height": 844}}
EXPIRY_SECONDS = 180
HOSTILE = "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    program = find_chromium(Path(".toolmesh"))
    folder = program.parent
    options: dict[str, Any] = {"args": ["--no-sandbox", "--no-zygote", "--disable-gpu"]}
    if (folder / "fonts.conf").exists():
        # The packaged build brings its libraries and fonts.
        own = {"LD_LIBRARY_PATH": str(folder / "lib"), "FONTCONFIG_FILE": str(folder / "fonts.conf")}
        options["env"] = {**os.environ, **own}
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=str(program), **options)
        yield running
        running.close()


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    folder = tmp_path_factory.mktemp("browser")
    rules = folder / "rules.json"
    rules.write_text(json.dumps({"escalation": {"fraction": 1.0, "timeout": f"{EXPIRY_SECONDS}s"}}))
    with running_mesh(folder / "state", TOOLMESH_APPROVAL_RULES=str(rules)) as running:
        register_shred_report(running, folder)
        files = [str(MANIFESTS / f"{name}_report.json") for name in ("write", "remove")]
        cli("tools", "register", *files, state=running.state)
        yield running


class Caller:
    """The agent whose calls need approval."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh, self._token = mesh, mesh.token(sub=ALICE)

    def call(self, tool: str, arguments: dict[str, Any], ticket: str = "") -> dict[str, Any]:
        key = f"{tool}-{arguments['name']}"
        call = {"tool": tool, "arguments": arguments, "idempotency_key": key, "ticket": ticket}
        answer: dict[str, Any] = self._mesh.rpc("tools.invoke", call, token=self._token).json()
        return answer

    def ticket(self, tool: str, arguments: dict[str, Any]) -> str:
        return str(self.call(tool, arguments)["error"]["data"]["metadata"]["ticket"])


@pytest.fixture(scope="module")
def forgotten(mesh: Mesh) -> str:
    """A ticket that no one decides."""
    return Caller(mesh).ticket(SHRED, {"name": "forgotten"})


def open_page(browser: Any, mesh: Mesh, size: str) -> tuple[Any, list[str]]:
    """Open a page that notes what goes wrong in it."""
    page = browser.new_context(viewport=SIZES[size], base_url=mesh.url).new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    blocked = "Content Security Policy"
    page.on("console", lambda message: problems.append(message.text) if blocked in message.text else None)
    return page, problems


def log_in(page: Any, token: str) -> None:
    page.goto("/console/approvals")
    page.fill("#token", token)
    page.keyboard.press("Enter")
    page.wait_for_selector("#live[data-state=on]")


def shoot(page: Any, name: str, size: str) -> None:
    # To hide the caret, Playwright would insert a style, which the policy blocks.
    page.screenshot(path=SCREENSHOTS / f"{name}-{size}.png", full_page=True, caret="initial")


def row(ticket: str) -> str:
    return f"#ticket-{ticket.removeprefix('tickets/')}"


def test_an_approver_decides_in_the_browser(browser: Any, mesh: Mesh, forgotten: str) -> None:
    caller, approver = Caller(mesh), mesh.token(sub=BOB, scopes="approvals:decide", groups="approvers")
    report = {"name": "seen", "title": HOSTILE, "body": "B"}
    for size in SIZES:
        page, problems = open_page(browser, mesh, size)
        page.goto("/console/approvals")
        shoot(page, "login", size)
        page.fill("#token", "not a token")
        page.keyboard.press("Enter")
        page.wait_for_selector(".notice.error")
        shoot(page, "login-refused", size)
        log_in(page, approver)
        page.wait_for_selector("#tickets")

        # The open page shows the call by itself; the keyboard alone leads to the approval.
        ticket = caller.ticket("samples.write_report", {**report, "name": f"seen-{size}"})
        page.wait_for_selector(row(ticket))
        assert page.title().startswith("(")
        denied = caller.ticket(SHRED, {"name": f"denied-{size}"})
        page.wait_for_selector(row(denied))
        page.keyboard.press("j")
        page.keyboard.press("j")
        assert page.evaluate("'#' + document.activeElement.id") == row(ticket)
        shoot(page, "list", size)
        page.keyboard.press("Enter")
        page.wait_for_selector("#approve")
        assert HOSTILE in page.inner_text("#ticket")
        shoot(page, "ticket", size)
        page.keyboard.press("a")
        page.keyboard.press("Enter")
        page.wait_for_selector("#state.state-approved")
        answer = caller.call("samples.write_report", {**report, "name": f"seen-{size}"}, ticket)
        assert answer["result"]["status"] == "succeeded"
        # The page of the ticket hears that the call ran.
        page.wait_for_selector("#state.state-redeemed")
        shoot(page, "ticket-used", size)

        page.goto(f"/console/approvals/{denied.removeprefix('tickets/')}")
        page.click("#deny")
        assert page.locator("#state.state-pending").count() == 1, "a denial needs a reason"
        page.fill("#reason", "not this one")
        page.click("#deny")
        page.wait_for_selector("#state.state-denied")
        assert caller.call(SHRED, {"name": f"denied-{size}"}, denied)["error"]["data"]["reason"] == "APPROVAL_REJECTED"
        page.goto("/console/approvals/no-such-ticket")
        shoot(page, "error", size)
        page.keyboard.press("?")
        assert page.title() != "run"
        page.click("text=Log out")
        page.wait_for_selector("#token")
        assert problems == []


def test_silence_ends_in_denial_on_the_open_page(browser: Any, mesh: Mesh, forgotten: str) -> None:
    page, _ = open_page(browser, mesh, "desk")
    log_in(page, mesh.token(sub=BOB, scopes="approvals:decide", groups="approvers"))
    page.goto(f"/console/approvals/{forgotten.removeprefix('tickets/')}")
    page.wait_for_selector("#state.state-auto_denied", timeout=3 * EXPIRY_SECONDS * 1000)
    shoot(page, "ticket-expired", "desk")
