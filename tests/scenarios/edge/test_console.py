"""The console through the edge of a running mesh: login, list, decisions, and forms and tokens that are refused."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import httpx
import pytest

from services.authz.tests.adapters.issuers.test_tokens import Provider
from services.authz.tests.adapters.issuers.test_trusted_issuers import entry
from services.authz.tests.https_server import HttpsServer, serving
from tests.harness.executors.shredding import MANIFESTS, SHRED, register_shred_report
from tests.harness.mesh import Mesh, cli, running_mesh
from tests.harness.stores import wait_until

ALICE, BOB = "did:web:example.com:alice", "did:web:example.com:bob"
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> \u202egnp.exe\u202c \"'{{7*7}}"
CLIENT = "toolmesh-console"


@dataclass
class LoginProvider:
    """An OpenID provider that logs everyone in, with codes that it checks by PKCE."""

    server: HttpsServer
    signer: Provider
    challenges: dict[str, str] = field(default_factory=dict)
    nonce: str = ""

    def describe(self) -> None:
        address = self.server.address
        described = {
            "issuer": address,
            "authorization_endpoint": f"{address}/auth",
            "token_endpoint": f"{address}/token",
        }
        self.server.documents |= {
            "/keys": self.signer.jwks("RS256"),
            "/.well-known/openid-configuration": json.dumps(described).encode(),
            "/token": self.redeem,
        }

    def log_in(self, url: str) -> str:
        """Do what the provider's page does; return the query that it sends the browser back with."""
        asked = dict(parse_qsl(urlsplit(url).query))
        assert asked["client_id"] == CLIENT
        assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
        code = f"code-{len(self.challenges)}"
        self.challenges[code], self.nonce = asked["code_challenge"], asked["nonce"]
        return f"code={code}&state={asked['state']}"

    def redeem(self, handler: BaseHTTPRequestHandler) -> None:
        form = parse_qs(handler.rfile.read(int(handler.headers["content-length"])).decode())
        digest = (
            base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"][0].encode()).digest()).decode().rstrip("=")
        )
        known = self.challenges.pop(form["code"][0], None) == digest
        claims: dict[str, Any] = {
            "iss": self.server.address,
            "aud": CLIENT,
            "nonce": self.nonce,
            "org": None,
            "groups": ["approvers"],
        }
        answer = {"id_token": self.signer.sign(**claims)} if known else {"error": "invalid_grant"}
        body = json.dumps(answer).encode()
        handler.send_response(200 if known else 400)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


class Browser:
    """A browser without scripts: it keeps cookies, and says where a form comes from."""

    def __init__(self, mesh: Mesh) -> None:
        self.http, self.origin = httpx.Client(base_url=mesh.url, timeout=30, trust_env=False), mesh.url
        self.seen: list[str] = []

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self._keep(self.http.get(path, headers=headers))

    def post(self, path: str, form: dict[str, str], **headers: str) -> httpx.Response:
        sent = {"origin": self.origin, "sec-fetch-site": "same-origin", **headers}
        return self._keep(self.http.post(path, data=form, headers={name: v for name, v in sent.items() if v}))

    def log_in(self, token: str) -> httpx.Response:
        return self.post("/console/login", {"token": token})

    def decide(self, ticket: str, verb: str, reason: str = "", **headers: str) -> httpx.Response:
        """Open the page of a ticket and send its form."""
        return self.post(f"{page(ticket)}/{verb}", {**self.fields(ticket), "reason": reason}, **headers)

    def fields(self, ticket: str) -> dict[str, str]:
        return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', self.get(page(ticket)).text))

    def state(self, ticket: str) -> str:
        (state,) = re.findall(r'state-(\w+)" id="state"', self.get(page(ticket)).text)
        return str(state)

    def _keep(self, response: httpx.Response) -> httpx.Response:
        self.seen.append(f"{response.headers} {response.text}".replace(response.headers.get("set-cookie", "-"), ""))
        assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
        assert "unsafe" not in response.headers["content-security-policy"]
        assert response.headers["referrer-policy"] == "same-origin"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in response.headers
        return response


def page(ticket: str) -> str:
    return f"/console/approvals/{ticket.removeprefix('tickets/')}"


@dataclass
class Desk:
    """A mesh with a tool that needs approval, its caller, an approver, and a provider that people log in at."""

    mesh: Mesh
    provider: LoginProvider
    token: str
    approver: str
    links: dict[str, str]
    """The path of the link to each ticket that approvers were notified of."""

    def call(self, name: str, ticket: str = "") -> dict[str, Any]:
        call = {"tool": SHRED, "arguments": {"name": name}, "idempotency_key": f"shred-{name}", "ticket": ticket}
        answer: dict[str, Any] = self.mesh.rpc("tools.invoke", call, token=self.token).json()
        return answer

    def ticket(self, name: str) -> str:
        """Make a call that needs approval; return its ticket."""
        return str(self.call(name)["error"]["data"]["metadata"]["ticket"])

    def hostile_ticket(self) -> str:
        """Make a call whose arguments would run in a careless page; return its ticket."""
        arguments = {"name": "hostile", "title": HOSTILE, "body": "B"}
        call = {"tool": "samples.write_report", "arguments": arguments, "idempotency_key": "hostile"}
        answer = self.mesh.rpc("tools.invoke", call, token=self.mesh.token(sub=ALICE)).json()
        return str(answer["error"]["data"]["metadata"]["ticket"])

    def browser(self, token: str | None = None) -> Browser:
        browser = Browser(self.mesh)
        browser.log_in(self.approver if token is None else token)
        return browser


class Notified(BaseHTTPRequestHandler):
    """Receives the notifications of approvers."""

    links: dict[str, str]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        for each in body["notifications"]:
            self.links[each["ticket"]] = each["link"].removeprefix("https://mesh.example.com")
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the name is the base class's)
        """Say nothing."""


@contextmanager
def notified(folder: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """Receive notifications; yield the file that says so to the mesh, and the links by ticket."""
    links: dict[str, str] = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Receiver", (Notified,), {"links": links}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    secret = "whsec_" + base64.b64encode(b"k" * 32).decode()
    hook = {"name": "hook", "kind": "webhook", "url": f"http://localhost:{server.server_port}/", "secret": secret}
    link = "https://mesh.example.com/console/approvals"
    file = {"channels": [hook], "internal_hosts": ["localhost"], "hourly_limit": 10_000, "link": link}
    (folder / "channels.json").write_text(json.dumps(file))
    yield folder / "channels.json", links
    server.shutdown()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, pki: Any) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("console")
    with serving(pki) as server, notified(folder) as (channels, links):
        provider = LoginProvider(server, Provider())
        provider.describe()
        grant = {"tools": ["echo"], "scopes": ["approvals:decide"], "trust_level": 20, "lifetime_seconds": 600}
        trusted = entry(
            issuer=server.address,
            audience=CLIENT,
            jwks=f"{server.address}/keys",
            ca=str(pki.ca),
            algorithms=["RS256"],
            groups={"claim": "groups", "accepted": ["approvers"]},
            grant={**grant, "delegation_depth": 0},
        )
        del trusted["tenant"]
        (folder / "issuers.json").write_text(json.dumps({"issuers": [trusted]}))
        settings = {
            "TOOLMESH_TRUSTED_ISSUERS": str(folder / "issuers.json"),
            "TOOLMESH_CONSOLE_OIDC_ISSUER": server.address,
            "TOOLMESH_CONSOLE_OIDC_CLIENT_ID": CLIENT,
            "TOOLMESH_CONSOLE_OIDC_CA": str(pki.ca),
            "TOOLMESH_APPROVAL_NOTIFICATIONS": str(channels),
        }
        with running_mesh(folder / "state", **settings) as mesh:
            register_shred_report(mesh, folder)
            files = [str(MANIFESTS / f"{name}_report.json") for name in ("write", "remove")]
            cli("tools", "register", *files, state=mesh.state)
            approver = mesh.token(sub=BOB, scopes="approvals:decide", groups="approvers")
            yield Desk(mesh, provider, mesh.token(sub=ALICE, trust="90"), approver, links)


def test_an_approver_sees_a_call_and_decides_about_it(desk: Desk) -> None:
    wanted, unwanted, hostile = desk.ticket("wanted"), desk.ticket("unwanted"), desk.hostile_ticket()
    browser = Browser(desk.mesh)
    assert browser.get(page(wanted)).headers["location"].startswith("/console/login?next=")
    refused = browser.log_in(desk.approver[:-4])
    assert refused.status_code == 401
    assert "TOKEN_" in refused.text
    accepted = browser.post("/console/login", {"token": desk.approver, "next": page(wanted)})
    assert accepted.headers["location"] == page(wanted)
    cookie = accepted.headers["set-cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=Strict", "Path=/"))

    listed = browser.get("/console/approvals").text
    assert all(f'href="{page(ticket)}"' in listed for ticket in (wanted, unwanted, hostile))
    shown = browser.get(page(hostile)).text
    assert "<script>alert" not in shown
    assert "<img src=x" not in shown
    assert html.escape(HOSTILE.split("\u202e")[0], quote=False).replace("'", "&#39;") in shown
    assert "‹U+202E›gnp.exe‹U+202C›" in shown

    assert browser.decide(wanted, "approve").status_code == 303
    assert browser.state(wanted) == "approved"
    assert desk.call("wanted", wanted)["result"]["structured_content"] == {"removed": False}
    assert browser.state(wanted) == "redeemed"
    assert "Compared with the last approved call" in browser.get(page(unwanted)).text

    without_reason = browser.decide(unwanted, "deny")
    assert (without_reason.status_code, "INVALID_REQUEST" in without_reason.text) == (400, True)
    fields = browser.fields(unwanted)
    assert browser.decide(unwanted, "deny", "not today").status_code == 303
    assert desk.call("unwanted", unwanted)["error"]["data"]["reason"] == "APPROVAL_REJECTED"
    late = browser.post(f"{page(unwanted)}/approve", {**fields, "reason": "kept <b>text</b>"})
    assert late.status_code >= 400
    assert "TICKET_CLOSED" in late.text

    own = desk.browser(desk.mesh.token(sub=ALICE, scopes="approvals:decide", groups="approvers"))
    assert "so others decide" in own.get(page(hostile)).text
    assert own.decide(hostile, "approve").status_code == 403
    assert own.decide(hostile, "cancel").status_code == 303
    assert browser.state(hostile) == "canceled"
    assert not any(desk.approver in seen for seen in browser.seen)

    form_token = {"form_token": browser.fields(wanted)["form_token"]}
    assert browser.post("/console/logout", form_token).status_code == 303
    assert browser.get(page(wanted)).status_code == 303


def test_forms_that_the_console_did_not_send_are_refused(desk: Desk) -> None:
    ticket, browser = desk.ticket("forged"), desk.browser()
    fields, path = {**browser.fields(ticket), "reason": "forged"}, f"{page(ticket)}/approve"
    forged = (
        browser.post(path, fields, origin=""),
        browser.post(path, fields, origin="null"),
        browser.post(path, fields, origin="https://evil.example"),
        browser.post(path, fields, origin=browser.origin.replace("127.0.0.1", "localhost")),
        browser.post(path, fields, **{"sec-fetch-site": "same-site"}),
        browser.post(path, {**fields, "form_token": ""}),
        browser.post(path, {**fields, "form_token": desk.browser().fields(ticket)["form_token"]}),
        browser.post("/console/login", {"token": desk.approver}, origin="https://evil.example"),
    )
    assert {response.status_code for response in forged} == {403}
    assert browser.http.post(path, content="reason=x", headers={"origin": browser.origin}).status_code == 400
    assert browser.http.put(path, headers={"origin": browser.origin}).status_code == 400
    stranger = Browser(desk.mesh)
    assert stranger.post(path, fields).headers["location"] == "/console/login"
    assert stranger.get(page(ticket), cookie="toolmesh-console=AAAA").status_code == 303
    # A token in a header is no session.
    assert stranger.get(page(ticket), authorization=f"Bearer {desk.approver}").status_code == 303
    assert browser.state(ticket) == "pending"


def test_pages_show_what_the_token_may_see(desk: Desk) -> None:
    ticket = desk.ticket("hidden")
    other = desk.browser(
        desk.mesh.token(sub=BOB, scopes="approvals:decide,approvals:read", groups="approvers", tenant="b")
    )
    for view in ("approver", "requester", "all"):
        assert '<li class="ticket' not in other.get(f"/console/approvals?view={view}").text
    assert other.get(page(ticket)).status_code == 404
    assert other.get("/console/nothing").status_code == 404
    # Led here by a link of another site, a browser keeps the cookie back: the page loads itself once more.
    assert 'http-equiv="refresh"' in Browser(desk.mesh).get(page(ticket), **{"sec-fetch-site": "cross-site"}).text
    outside = Browser(desk.mesh).post("/console/login", {"token": desk.approver, "next": "//evil.example/console/"})
    assert outside.headers["location"] == "/console/approvals"
    static = re.findall(r'(?:src|href)="(/console/static/[^"]+)"', desk.browser().get("/console/approvals").text)
    assert len(set(static)) == 5
    for url in set(static):
        assert "immutable" in desk.browser().get(url).headers["cache-control"]


def test_the_link_of_a_notification_needs_the_login_and_works_once(desk: Desk) -> None:
    ticket = desk.ticket("linked")
    wait_until(lambda: ticket in desk.links, "the notification of approvers")
    link = desk.links[ticket]
    # Without the login it only leads there, however often it is opened.
    browser = Browser(desk.mesh)
    for _ in range(2):
        login = browser.get(link)
    form = dict(parse_qsl(urlsplit(login.headers["location"]).query))
    assert form["next"] == link
    accepted = browser.post("/console/login", {"token": desk.approver, **form})
    opened = browser.get(accepted.headers["location"])
    assert (opened.status_code, opened.headers["location"]) == (303, page(ticket))
    assert browser.state(ticket) == "pending"
    replayed = browser.get(link)
    assert (replayed.status_code, "TICKET_LINK_USED" in replayed.text) == (409, True)
    other = desk.browser(desk.mesh.token(sub=ALICE, scopes="approvals:decide", groups="approvers"))
    assert "SELF_APPROVAL" in other.get(link).text
    assert browser.get(f"{page(ticket)}?link={'0' * 64}").status_code == 404
    acts = json.loads(cli("audit", "acts", ticket, "--json", state=desk.mesh.state).stdout)["records"]
    refused = [act["record"]["act"]["reason"] for act in acts if act["record"]["event_class"] == "ticket_refused"]
    assert sorted(refused) == ["SELF_APPROVAL", "TICKET_LINK_USED"]


def test_an_open_page_hears_of_a_new_ticket(desk: Desk) -> None:
    browser = desk.browser()
    with browser.http.stream("GET", "/console/events/approvals") as stream:
        assert stream.headers["content-type"] == "text/event-stream"
        events = (line for line in stream.iter_lines() if line == "event: changed")
        next(events)
        desk.ticket(f"live-{time.time_ns()}")
        next(events)


def test_people_log_in_at_the_provider(desk: Desk) -> None:
    ticket, browser = desk.ticket("by-provider"), Browser(desk.mesh)
    assert "Log in with localhost" in browser.get("/console/login").text
    begun = browser.get(f"/console/login/oidc?next={page(ticket)}")
    answer = desk.provider.log_in(begun.headers["location"])
    assert Browser(desk.mesh).get(f"/console/login/callback?{answer}").status_code == 401
    finished = browser.get(f"/console/login/callback?{answer}")
    assert finished.headers["location"] == page(ticket)
    assert browser.decide(ticket, "approve").status_code == 303
    assert "did:web:login.example.com:users:auth0" in browser.get(page(ticket)).text

    again = Browser(desk.mesh)
    answer = desk.provider.log_in(again.get("/console/login/oidc").headers["location"])
    desk.provider.nonce = "of another login"
    assert again.get(f"/console/login/callback?{answer}").status_code == 401
    # The attempt is over: neither its code nor its state is accepted a second time.
    assert again.get(f"/console/login/callback?{answer}").status_code == 401
    refused = Browser(desk.mesh)
    state = dict(parse_qsl(urlsplit(refused.get("/console/login/oidc").headers["location"]).query))["state"]
    assert refused.get(f"/console/login/callback?error=access_denied&state={state}").status_code == 401
