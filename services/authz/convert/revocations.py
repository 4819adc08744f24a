"""Between the contract and the domain, for what is taken back. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.authz.v1 import token_service_pb2 as pb

from services.authz.domain.model import Invalidation, Revocation, Target
from services.authz.domain.revocation.revoke_token import NEVER

# Each may name somebody in 512 characters, and all of them must fit into what gRPC takes for one message.
MAX_REVOCATIONS = 5_000
_FIELDS = {"token": "token_id", "subject": "subject", "key": "key_id"}


def target_of(request: pb.RevokeTokenRequest) -> Target:
    """Read what is to be revoked; the contract makes sure that there is something."""
    match request.WhichOneof("target"):
        case "subject":
            return Target("subject", request.subject)
        case "key_id":
            return Target("key", request.key_id)
        case _:
            return Target("token", request.token_id)


def revocation_message(revocation: Revocation) -> pb.Revocation:
    """Render a revocation for people."""
    message = _bare(revocation)
    message.reason, message.revoked_by = revocation.reason, revocation.revoked_by
    return message


def invalidation_messages(word: Invalidation) -> Iterator[pb.WatchInvalidationsResponse]:
    """Render a word to those who remember answers, in as many messages as it takes. They need not know why something was revoked, nor by
    whom."""
    last = max(len(word.revocations) - 1, 0) // MAX_REVOCATIONS
    for place in range(last + 1):
        some = word.revocations[place * MAX_REVOCATIONS : (place + 1) * MAX_REVOCATIONS]
        yield pb.WatchInvalidationsResponse(
            sequence=word.sequence,
            revocations=[_bare(one) for one in some],
            policy_set_version=word.policy_set_version,
            snapshot=word.snapshot and place == 0,
            continued=place < last,
        )


def _bare(revocation: Revocation) -> pb.Revocation:
    message = pb.Revocation(name=f"revocations/{revocation.sequence}", revoke_time=_stamp(revocation.revoked_at))
    setattr(message, _FIELDS[revocation.target.kind], revocation.target.value)
    if revocation.expires_at < NEVER:
        message.expire_time.CopyFrom(_stamp(revocation.expires_at))
    return message


def _stamp(moment: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(moment)
    return stamp
