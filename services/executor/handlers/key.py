"""Handles the RPCs of the key service, in proto order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolmesh.executor.v1 import key_service_pb2 as keys_pb
from toolmesh.executor.v1 import key_service_pb2_grpc as keys_rpc

from libs.common.call_context import serving
from services.executor.convert import keys as convert_keys
from services.executor.domain.idempotency.list_keys import ListKeys, get_key
from services.executor.domain.idempotency.settle_key import SettleKey


@dataclass(frozen=True)
class KeyHandlers(keys_rpc.KeyServiceServicer):
    """Implements KeyService."""

    list_keys: ListKeys
    settle_key: SettleKey

    async def ListKeys(self, request: keys_pb.ListKeysRequest, context: Any) -> keys_pb.ListKeysResponse:
        wanted = convert_keys.filter_of(request, serving())
        page, token = await self.list_keys.execute(wanted, request.page_size, request.page_token)
        return keys_pb.ListKeysResponse(keys=map(convert_keys.key_message, page), next_page_token=token)

    async def GetKey(self, request: keys_pb.GetKeyRequest, context: Any) -> keys_pb.GetKeyResponse:
        key = await get_key(self.list_keys.keys, request.name, convert_keys.tenant_of(serving()))
        return keys_pb.GetKeyResponse(key=convert_keys.key_message(key))

    async def SettleKey(self, request: keys_pb.SettleKeyRequest, context: Any) -> keys_pb.SettleKeyResponse:
        key, record_id = await self.settle_key.execute(convert_keys.settlement_of(request, serving()))
        return keys_pb.SettleKeyResponse(key=convert_keys.key_message(key), record=f"records/{record_id}")
