"""Who may publish under which name. A namespace has one owner, whatever provider a manifest names."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from libs.common.auth.peers import OPERATOR
from services.registry.domain.model import Actor


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace, who owns it, and whom the owner lets publish."""

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

    def lets_publish(self, who: Actor) -> bool:
        """True for the owner, for delegates, and for the operator, who answers for the mesh."""
        return is_operator(who) or who.recorded == self.owner or who.recorded in self.delegates

    def lets_delegate(self, who: Actor) -> bool:
        """True for the owner and the operator."""
        return is_operator(who) or who.recorded == self.owner


def is_operator(who: Actor) -> bool:
    """The operator itself: a subject that comes through the operator's connection is not."""
    return who.peer == OPERATOR and not who.subject
