"""The table of hostile tokens in docs/tokens.md, row by row, against a running server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc.aio
import jwt
import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from libs.common.rpc.status import from_rpc_error
from services.authz.adapters.keys.thumbprints import jwk_thumbprint
from tests.harness.clients.hostile import ACCEPTED, CASES, Workshop, outcomes

TABLE = outcomes(Path(__file__).resolve().parents[4])


@pytest.fixture
def workshop(pems: tuple[bytes, ...]) -> Workshop:
    key: Any = load_pem_private_key(pems[0], None)
    return Workshop(key, jwk_thumbprint(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)))


def test_the_documented_table_lists_exactly_the_tested_tokens() -> None:
    assert set(TABLE) == set(CASES)


async def outcome(mesh: Any, token: str) -> str:
    try:
        await mesh.check(token)
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error).row.code
    return ACCEPTED


async def test_every_case_ends_as_the_table_says(mesh: Any, workshop: Workshop) -> None:
    # One server for all rows: each of them costs a call, not a start. Every row that differs is shown.
    found = {case: await outcome(mesh, make(workshop)) for case, make in CASES.items()}
    assert {case: ended for case, ended in found.items() if TABLE.get(case) != ended} == {}
