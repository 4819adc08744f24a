"""Authority is taken back at one replica of authz: another one, and an executor that follows only that one, keep to
it within a
second, with the bus and without it; and when revocations are unknown, nothing is allowed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from toolmesh.authz.v1 import authz_service_pb2 as authz_pb
from toolmesh.authz.v1 import authz_service_pb2_grpc as authz_rpc
from toolmesh.authz.v1 import policy_service_pb2 as policy_pb
from toolmesh.authz.v1 import policy_service_pb2_grpc as policy_rpc
from toolmesh.authz.v1 import token_service_pb2 as pb
from toolmesh.authz.v1 import token_service_pb2_grpc as rpc
from toolmesh.authz.v1.capability_token_pb2 import ToolGrant

from libs.common.auth.revocations import MAX_SILENCE
from libs.common.ids import new_id
from services.authz.adapters.keys.key_folder import PUBLISH_AHEAD
from tests.harness.executors.replicas import Napper, Process, another, channel_to_process, code_of, envelope_of
from tests.harness.mesh import Mesh, cli, invoke, running_mesh
from tests.harness.stores import wait_until

AGENT = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"
# The requirement itself.
SECOND = 1.0
FORBIDDEN = """
@id("no-echo") @effect("deny") @reason("Nobody echoes any more.")
forbid (principal, action == Action::"invoke", resource) when { resource.tool_id == "echo" };
"""


@dataclass
class Setting:
    """A mesh, its own authz, another authz, and an executor that knows only the other."""

    mesh: Mesh
    here: grpc.Channel
    """The operator's way to the mesh's own authz."""
    there: grpc.Channel
    """The operator's way to the other one."""
    other: Process
    executor: Napper

    def mint(self, subject: str = "", **changes: Any) -> authz_pb.IssueTokenResponse:
        """Mint a token of a fresh subject."""
        asked = {"tools": [ToolGrant(tool="*")], "scopes": ["tools:call", "tools:read", "audit:read"], **changes}
        subject = subject or f"did:web:toolmesh.local:users:{new_id()}"
        return authz_rpc.AuthzServiceStub(self.here).IssueToken(authz_pb.IssueTokenRequest(subject=subject, **asked))

    def derive(self, token: str) -> pb.DelegateTokenResponse:
        request = pb.DelegateTokenRequest(agent=AGENT, part=pb.Part(scopes=["tools:call"]))
        with self.mesh.edge_channel() as channel:
            metadata = [("authorization", f"Bearer {token}")]
            return rpc.TokenServiceStub(channel).DelegateToken(request, metadata=metadata, timeout=10)  # type: ignore[arg-type]

    def revoke(self, **target: str) -> None:
        rpc.TokenServiceStub(self.here).RevokeToken(pb.RevokeTokenRequest(reason="a test", **target), timeout=10)

    def code_there(self, token: str) -> str:
        """What the other replica says of a token."""
        asked = authz_pb.IntrospectTokenRequest(token=token)
        return authz_rpc.AuthzServiceStub(self.there).IntrospectToken(asked, timeout=5).error_code

    def code_over_http(self, token: str, method: str = "tools.invoke") -> str:
        params: dict[str, Any] = {"tool": "echo", "arguments": {"text": "x"}} if method == "tools.invoke" else {}
        return str(self.mesh.rpc(method, params, token=token).json().get("error", {}).get("data", {}).get("code", ""))


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    """A mesh of this module's own, because others must not see it suffer."""
    folder = tmp_path_factory.mktemp("replicas")
    with (
        running_mesh(tmp_path_factory.mktemp("revocation")) as mesh,
        another(mesh, "authz", folder) as other,
        another(
            mesh,
            "executor",
            folder,
            module="tests.harness.executors.napping_executor",
            TOOLMESH_AUTHZ_ADDRESS=other.address,
        ) as executor,
        mesh.direct_channel("authz", "operator") as here,
        channel_to_process(mesh, other, "operator") as there,
        channel_to_process(mesh, executor) as to_executor,
    ):
        found = Setting(mesh, here, there, other, Napper(to_executor, folder))
        wait_until(lambda: found.executor.knows_nap(found.mint().token), "the registration of the nap", 240)
        yield found


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Hold a process still, so that it is neither dead nor answering."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture(params=["with the bus", "without the bus"])
def bus(request: pytest.FixtureRequest, setting: Setting) -> Iterator[None]:
    """The bus between the replicas, or none that answers."""
    if request.param == "with the bus":
        yield
    else:
        with frozen(int(setting.mesh.part("valkey")["pid"])):
            yield


def refused_everywhere(setting: Setting, token: str, code: str = "E3212") -> Callable[[], bool]:
    return lambda: (
        setting.executor.code(token) == code
        and setting.code_there(token) == code
        and setting.code_over_http(token) == code
        and setting.code_over_http(token, "tools.list") == code
    )


@pytest.mark.usefixtures("bus")
@pytest.mark.parametrize("kind", ["token_id", "subject"])
def test_a_revoked_token_is_refused_everywhere_within_a_second_with_all_that_was_derived(
    setting: Setting, kind: str
) -> None:
    root, other = setting.mint(), setting.mint()
    derived = setting.derive(root.token)
    for token in (root.token, derived.token, other.token):
        # Warm: verified, remembered, its decision cached.
        wait_until(lambda: setting.executor.code(token) == "", "a warm call")  # noqa: B023
    assert setting.code_over_http(root.token) == setting.code_over_http(root.token, "tools.list") == ""
    setting.revoke(**{kind: root.claims.token_id if kind == "token_id" else root.claims.subject})
    wait_until(refused_everywhere(setting, root.token), "the end of the token", SECOND)
    wait_until(lambda: setting.executor.code(derived.token) == "E3212", "the end of what was derived", 0.1)
    assert setting.code_there(derived.token) == "E3212"
    assert setting.executor.code(other.token) == ""


@pytest.mark.usefixtures("bus")
def test_other_policies_count_everywhere_within_a_second_also_for_remembered_decisions(setting: Setting) -> None:
    policies, token = policy_rpc.PolicyServiceStub(setting.here), setting.mint().token
    assert setting.executor.code(token) == ""
    document = policy_pb.PolicyDocument(name="no_echo.cedar", text=FORBIDDEN)
    put = policies.PutPolicy(policy_pb.PutPolicyRequest(documents=[document]), timeout=20).policy_set
    policies.ActivatePolicySet(policy_pb.ActivatePolicySetRequest(name=put.name), timeout=20)
    try:
        wait_until(lambda: setting.executor.code(token) == "E3206", "a denial by the new policies", SECOND)
        for _ in range(10):
            assert setting.executor.code(token) == "E3206"
    finally:
        policies.RollbackPolicySet(policy_pb.RollbackPolicySetRequest(), timeout=20)
    wait_until(lambda: setting.executor.code(token) == "", "an allowance by the old policies", SECOND)


@pytest.mark.parametrize("lost", ["its own token", "the token it was derived from"])
def test_what_runs_on_a_revoked_token_ends_within_a_second_on_record(setting: Setting, lost: str) -> None:
    root = setting.mint()
    derived = setting.derive(root.token)
    token = root.token if lost == "its own token" else derived.token
    with ThreadPoolExecutor(1) as pool:
        running = setting.executor.nap(pool, new_id(), token)
        setting.revoke(token_id=root.claims.token_id)
        wait_until(running.done, "the end of the call", SECOND)
    envelope = envelope_of(running.exception())
    assert envelope.code == "E3212"

    def ended() -> dict[str, Any]:
        """The last record of the call."""
        arguments = ("audit", "tail", "--invocation", envelope.invocation_id, "--json")
        found = json.loads(cli(*arguments, state=setting.mesh.state).stdout)["records"]
        last: dict[str, Any] = max(found, key=lambda entry: int(entry["sequence"]))["record"]
        return last

    last = ended()
    assert (last["state"], last["error_reason"]) == ("canceled", "TOKEN_REVOKED")


def test_a_revoked_key_takes_its_tokens_and_signs_no_more_and_a_new_one_is_met_before_it_signs(
    setting: Setting,
) -> None:
    """Rotation without a gap, and then the end of the old key."""
    old = setting.mint()
    folder = setting.mesh.state / "secrets" / "signing-keys"
    # Of another kind than the old one: a mesh may move from one algorithm to another the same way.
    key = ed25519.Ed25519PrivateKey.generate()
    added = folder / "99991231T000000Z.pem"
    added.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    kid = jwt.get_unverified_header(old.token)["kid"]
    fresh: list[str] = []

    def signs() -> bool:
        """Every token works everywhere from its first moment on, whichever key signed it."""
        fresh[:] = [setting.mint().token]
        for token in (old.token, fresh[0]):
            assert setting.code_over_http(token) == setting.code_over_http(token, "tools.list") == ""
            assert setting.executor.code(token) == setting.code_there(token) == ""
        return bool(jwt.get_unverified_header(fresh[0])["kid"] != kid)

    wait_until(signs, "a token by the new key", PUBLISH_AHEAD + 20)
    setting.revoke(key_id=kid)
    wait_until(refused_everywhere(setting, old.token), "the end of the old key's tokens", SECOND)
    assert setting.executor.code(fresh[0]) == setting.code_over_http(fresh[0]) == ""
    assert jwt.get_unverified_header(setting.mint().token)["kid"] != kid


def test_without_authz_nothing_is_allowed_and_every_refusal_comes_before_the_deadline(setting: Setting) -> None:
    known, new = setting.mint().token, setting.mint().token
    assert setting.executor.code(known) == ""

    def code(token: str) -> str:
        # A refusal that waited for authz would be the client's own, without a code.
        return setting.executor.code(token, timeout=10)

    with frozen(setting.other.process.pid):
        # This one was never decided.
        assert code(new) in ("E3001", "E3002")
        # What was decided holds for as long as the view is believed, and not longer.
        wait_until(lambda: code(known) == "E3001", "the end of belief", MAX_SILENCE + 5)
        for token in (known, new):
            with pytest.raises(grpc.RpcError) as caught:
                invoke(setting.executor.channel, "echo", b'{"text":"x"}', token=token, timeout=10)
            assert (code_of(caught.value), envelope_of(caught.value).retryable) == ("E3001", True)
    wait_until(lambda: code(known) == code(new) == "", "the return of authz", 240)


def test_a_dead_authz_is_the_same_as_a_silent_one(setting: Setting) -> None:
    token = setting.mint().token
    assert setting.executor.code(token) == ""
    setting.other.process.kill()
    setting.other.process.wait()
    wait_until(lambda: setting.executor.code(token, timeout=1.5) == "E3001", "the end of belief", MAX_SILENCE + 5)
