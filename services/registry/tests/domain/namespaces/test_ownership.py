"""Who may publish in a namespace, and manage its delegates."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from services.registry.domain.model import Actor
from services.registry.domain.namespaces.ownership import Namespace, is_operator

ANN, BEN, EVE = (f"did:web:acme.example:users:{name}" for name in ("ann", "ben", "eve"))
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ACME = Namespace("acme", "acme", ANN, NOW, NOW, delegates=(BEN,))


@pytest.mark.parametrize(
    ("actor", "publishes", "delegates"),
    [
        (Actor("edge", ANN), True, True),
        (Actor("edge", BEN), True, False),
        (Actor("edge", EVE), False, False),
        (Actor("operator"), True, True),
        # A subject on the connection of the operator has the rights of the subject alone.
        (Actor("operator", EVE), False, False),
        (Actor("operator", BEN), True, False),
        (Actor("executor"), False, False),
    ],
)
def test_owners_delegates_and_the_operator_may_publish(actor: Actor, publishes: bool, delegates: bool) -> None:
    assert (ACME.may_publish(actor), ACME.may_delegate(actor)) == (publishes, delegates)


def test_only_the_operator_itself_is_the_operator() -> None:
    assert is_operator(Actor("operator"))
    assert not is_operator(Actor("operator", EVE))
    assert not is_operator(Actor("edge", "operator"))
