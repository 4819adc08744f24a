"""Ownership of namespaces. A namespace has one owner, independent of the provider in manifests."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from libs.common.auth.peers import OPERATOR
from services.registry.domain.model import Actor


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace, its owner, and the delegates who may publish."""

    namespace: str
    provider: str
    owner: str
    """A subject, or the name of a peer that acted for itself."""
    create_time: datetime
    update_time: datetime
    delegates: tuple[str, ...] = ()
    revision: int = 1

    @property
    def name(self) -> str:
        """The resource name."""
        return f"namespaces/{self.namespace}"

    @property
    def etag(self) -> str:
        """Differs after every change."""
        return f"{self.revision:x}"

    def may_publish(self, who: Actor) -> bool:
        """Return whether an actor may publish: the owner, a delegate or the operator."""
        return is_operator(who) or who.recorded_name == self.owner or who.recorded_name in self.delegates

    def may_delegate(self, who: Actor) -> bool:
        """Return whether an actor may manage delegates: the owner or the operator."""
        return is_operator(who) or who.recorded_name == self.owner


def is_operator(who: Actor) -> bool:
    """Return whether the actor is the operator itself, not a subject on the operator's connection."""
    return who.peer == OPERATOR and not who.subject
