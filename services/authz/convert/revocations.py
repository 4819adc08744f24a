"""Converts the messages of revocations and invalidations."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.authz.v1 import token_service_pb2 as pb

from services.authz.domain.model import Invalidation, Revocation, RevocationTarget
from services.authz.domain.revocation.revoke_token import NEVER

# A revocation may name a subject of 512 characters, and all of them must fit into one gRPC message.
MAX_REVOCATIONS = 5_000
_FIELDS = {"token": "token_id", "subject": "subject", "key": "key_id"}


def target_of(request: pb.RevokeTokenRequest) -> RevocationTarget:
    """Parse the target of a revocation; the contract requires one."""
    match request.WhichOneof("target"):
        case "subject":
            return RevocationTarget("subject", request.subject)
        case "key_id":
            return RevocationTarget("key", request.key_id)
        case _:
            return RevocationTarget("token", request.token_id)


def revocation_message(revocation: Revocation) -> pb.Revocation:
    """Build the message of a revocation, with its reason and author."""
    message = _target_message(revocation)
    message.reason, message.revoked_by = revocation.reason, revocation.revoked_by
    return message


def invalidation_messages(invalidation: Invalidation) -> Iterator[pb.WatchInvalidationsResponse]:
    """Yield the messages of an invalidation, each of bounded size. They leave out the reason and author of
    revocations."""
    last = max(len(invalidation.revocations) - 1, 0) // MAX_REVOCATIONS
    for index in range(last + 1):
        chunk = invalidation.revocations[index * MAX_REVOCATIONS : (index + 1) * MAX_REVOCATIONS]
        yield pb.WatchInvalidationsResponse(
            sequence=invalidation.sequence,
            revocations=[_target_message(revocation) for revocation in chunk],
            policy_set_version=invalidation.policy_set_version,
            snapshot=invalidation.snapshot and index == 0,
            continued=index < last,
        )


def _target_message(revocation: Revocation) -> pb.Revocation:
    message = pb.Revocation(
        name=f"revocations/{revocation.sequence}",
        revoke_time=_timestamp(revocation.revoked_at),
        tenant=revocation.tenant,
    )
    setattr(message, _FIELDS[revocation.target.kind], revocation.target.value)
    if revocation.expires_at < NEVER:
        message.expire_time.CopyFrom(_timestamp(revocation.expires_at))
    return message


def _timestamp(time: datetime) -> Timestamp:
    timestamp = Timestamp()
    timestamp.FromDatetime(time)
    return timestamp
