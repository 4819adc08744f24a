"""Pages of circuits."""

from __future__ import annotations

import pytest

from libs.common import page_tokens
from libs.common.errors import MeshError, Reason
from services.executor.domain.resilience.circuit import CircuitState
from services.executor.domain.resilience.list_circuits import CircuitView, ListCircuits

NAMES = ["shop/a", "shop/b", "shop/c"]


class Stored:
    """Circuits of one namespace."""

    async def find(self, namespace: str, *, after: str, limit: int) -> list[CircuitView]:
        names = [name for name in NAMES if name.startswith(f"{namespace}/") and name > after]
        return [CircuitView(name, CircuitState.CLOSED, None, None, 0, 0, 0, shared=True) for name in names[:limit]]


async def test_every_circuit_is_on_one_page() -> None:
    use_case = ListCircuits(Stored())
    first, token = await use_case.execute("shop", 2, "")
    second, end = await use_case.execute("shop", 2, token)
    assert [each.name for each in (*first, *second)] == NAMES
    assert end == ""
    assert (await use_case.execute("shop", 3, ""))[1] == ""


@pytest.mark.parametrize(
    "token",
    [page_tokens.encode(["circuits", "other"], ["shop/a"]), page_tokens.encode(["circuits", "shop"], [1]), "x"],
)
async def test_a_token_of_another_query_is_refused(token: str) -> None:
    with pytest.raises(MeshError) as refused:
        await ListCircuits(Stored()).execute("shop", 2, token)
    assert refused.value.reason is Reason.PAGE_TOKEN_INVALID
