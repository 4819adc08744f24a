"""The console over real mutual TLS, with peers behind it: cookies, refusals and failures."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from toolmesh.approval.v1.ticket_pb2 import REVIEW_STATE_REJECTED, REVIEW_STATE_UPHELD

from services.gateway.tests.conftest import Mesh

# One gateway serves the whole module; each test sees only what it did itself.
pytestmark = pytest.mark.asyncio(loop_scope="module")
TICKET = "/console/approvals/0198c"


class Browser:
    """A browser at the edge, under TLS unless it says otherwise."""

    def __init__(self, mesh: Mesh, **headers: str) -> None:
        self.http = mesh.client(token="").http
        self.headers = {"origin": str(self.http.base_url), "cookie": "", **headers}

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.http.get(path, headers={**self.headers, **headers})

    async def post(self, path: str, form: dict[str, str], **headers: str) -> httpx.Response:
        return await self.http.post(path, data=form, headers={**self.headers, **headers})

    async def log_in(self, token: str) -> httpx.Response:
        response = await self.post("/console/login", {"token": token})
        self.http.cookies.clear()
        self.headers["cookie"] = response.headers.get("set-cookie", "").partition(";")[0]
        return response

    async def form_token(self) -> str:
        (found,) = set(re.findall(r'name="form_token" value="([^"]+)"', (await self.get("/console/approvals")).text))
        return str(found)


def approver(mesh: Mesh, **claims: Any) -> str:
    return str(mesh.signer.mint(scope="approvals:decide", **claims))


async def test_the_cookie_is_bound_to_the_host_under_tls(mesh: Mesh) -> None:
    token, browser = approver(mesh), Browser(mesh)
    response = await browser.log_in(token)
    cookie = response.headers["set-cookie"]
    assert cookie.startswith("__Host-toolmesh-console=")
    assert {"Secure", "HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert token not in cookie
    plain = Browser(mesh, **{"x-forwarded-proto": "http"})
    plain.headers["origin"] = plain.headers["origin"].replace("https", "http")
    cookie = (await plain.log_in(token)).headers["set-cookie"]
    assert cookie.startswith("toolmesh-console=")
    assert "Secure" not in cookie


async def test_calls_carry_the_token_of_the_session_and_no_other(mesh: Mesh) -> None:
    browser = Browser(mesh)
    await browser.log_in(approver(mesh))
    assert (await browser.get(TICKET)).status_code == 200
    assert (await browser.get(TICKET, authorization="Bearer x")).status_code == 200
    form = {"form_token": await browser.form_token(), "reason": " why ", "etag": "e1"}
    assert (await browser.post(f"{TICKET}/deny", form)).status_code == 303
    denial = mesh.peers.reads[-1]
    assert (denial.name, denial.reason, denial.etag) == ("tickets/0198c", "why", "e1")
    assert (await browser.post(f"{TICKET}/override", form)).status_code == 303
    assert (mesh.peers.reads[-1].reason, mesh.peers.reads[-1].etag) == ("why", "e1")
    for verdict, stored in (("upheld", REVIEW_STATE_UPHELD), ("rejected", REVIEW_STATE_REJECTED)):
        review = {"form_token": form["form_token"], "finding": "so", "verdict": verdict}
        assert (await browser.post(f"{TICKET}/review", review)).status_code == 303
        assert (mesh.peers.reads[-1].verdict, mesh.peers.reads[-1].finding) == (stored, "so")
    browser.headers["cookie"] = ""
    assert (await browser.get(TICKET, authorization=f"Bearer {approver(mesh)}")).status_code == 303


async def test_a_form_of_another_site_reaches_no_service(mesh: Mesh) -> None:
    browser = Browser(mesh)
    await browser.log_in(approver(mesh))
    form = {"form_token": await browser.form_token(), "reason": "x"}
    seen = len(mesh.peers.reads)
    for origin in ("https://evil.example", "null", "", browser.headers["origin"].replace("https", "http")):
        assert (await browser.post(f"{TICKET}/approve", form, origin=origin)).status_code == 403
    assert (await browser.post(f"{TICKET}/approve", form, **{"sec-fetch-site": "cross-site"})).status_code == 403
    assert (await browser.post(f"{TICKET}/approve", {**form, "form_token": "x"})).status_code == 403
    assert (await browser.post(f"{TICKET}/cancel", {"reason": "x"})).status_code == 403
    assert len(mesh.peers.reads) == seen


async def test_a_token_that_the_services_refuse_is_no_login(mesh: Mesh) -> None:
    browser = Browser(mesh)
    for token, status in (
        ("", 401),
        (approver(mesh)[:-3], 401),
        (str(mesh.signer.mint(scope="tools:call")), 403),
        (approver(mesh, cnf={"jkt": "thumb"}), 401),
    ):
        response = await browser.log_in(token)
        assert response.status_code == status
        assert "Max-Age=0" in response.headers["set-cookie"]
        assert not token or token not in response.text


async def test_a_part_of_a_page_without_a_session_leads_to_the_login(mesh: Mesh) -> None:
    response = await Browser(mesh).get("/console/approvals", **{"hx-request": "true"})
    assert response.status_code == 401
    assert response.headers["hx-redirect"].startswith("/console/login")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/console/approvals?view=none", 404),
        ("/console/approvals/a/b", 404),
        ("/console/approvals?" + "&".join(f"a{n}=1" for n in range(40)), 400),
        ("/console/approvals?view=%ff", 400),
        ("/console/static/0/console.css", 404),
        ("/console/login/oidc", 404),
        ("/console/approvals?page=x%00", 200),
    ],
)
async def test_malformed_addresses_have_a_page_of_their_own(mesh: Mesh, path: str, status: int) -> None:
    browser = Browser(mesh)
    await browser.log_in(approver(mesh))
    response = await browser.get(path)
    assert response.status_code == status
    assert response.headers["content-type"].startswith("text/html")


async def test_large_and_foreign_bodies_are_refused(mesh: Mesh) -> None:
    browser = Browser(mesh)
    assert (await browser.post("/console/login", {"token": "x" * 70_000})).status_code == 413
    json_type = {"content-type": "application/json"}
    assert (await browser.post("/console/login", {}, **json_type)).status_code == 400
    two = "__Host-toolmesh-console=a; __Host-toolmesh-console=b"
    assert (await browser.get("/console/approvals", cookie=two)).status_code == 400


async def test_calls_are_counted_by_page_and_logged_without_secrets(mesh: Mesh) -> None:
    token, browser = approver(mesh), Browser(mesh)
    await browser.log_in(token)
    await browser.get(TICKET)
    lines = mesh.lines()
    assert {line["method"] for line in lines if line["event"] == "call"} >= {"console/login_token", "console/ticket"}
    written = str(lines)
    assert token not in written
    assert browser.headers["cookie"].partition("=")[2] not in written


async def test_an_unreachable_service_is_shown_with_advice(mesh: Mesh) -> None:
    browser = Browser(mesh)
    await browser.log_in(approver(mesh))
    await mesh.peers.stop_one("approval")
    response = await browser.get(TICKET)
    assert response.status_code in (503, 504)
    assert "What to do" in response.text
