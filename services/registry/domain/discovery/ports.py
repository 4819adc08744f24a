"""What discovery needs from the world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from services.registry.domain.discovery.environment import Eligibility, SurfaceEnvironment
from services.registry.domain.discovery.query import Query
from services.registry.domain.discovery.results import Hits
from services.registry.domain.publishing.manifest import Manifest


class LanguageUnavailableError(Exception):
    """The language process did not answer; another attempt starts another one."""


class Language(Protocol):
    """Turns texts into vectors and counts their tokens."""

    @property
    def model(self) -> str:
        """Names the model; vectors of two models cannot be compared."""
        ...

    @property
    def tokenizers(self) -> Sequence[str]:
        """Names what tokens can be counted by, the default first."""
        ...

    async def embed(self, texts: Sequence[str], *, background: bool = False) -> Sequence[bytes]:
        """Return a vector of half floats for each text. Raises LanguageUnavailableError."""
        ...

    async def count(self, texts: Sequence[str], tokenizer: str) -> Sequence[int]:
        """Return how many tokens each text has. Raises LanguageUnavailableError."""
        ...


@dataclass(frozen=True, slots=True)
class VectorClaim:
    """A manifest whose vector this process has taken on to work out."""

    digest: str
    manifest: Manifest


class Vectors(Protocol):
    """The vectors of manifests, by their digests, shared by all replicas."""

    async def claim(self, limit: int) -> Sequence[VectorClaim]:
        """Take manifests without a vector that nobody else is working on; each is given back if no vector comes."""
        ...

    async def put(self, vectors: Mapping[str, bytes]) -> None:
        """Store vectors by the digests of their manifests."""
        ...

    async def release(self, digests: Sequence[str]) -> None:
        """Give back what was taken, for somebody else to work on at once."""
        ...

    async def load(self, digests: Sequence[str]) -> Mapping[str, bytes]:
        """Return the vectors that are there."""
        ...


class Searcher(Protocol):
    """Everything that can be found, in memory."""

    def search(self, query: Query, now: datetime) -> Hits:
        """Return what fits, ranked. Waits for nothing."""
        ...

    def assess_eligibility(self, query: Query, environment: SurfaceEnvironment, now: datetime) -> Eligibility:
        """Return where every tool stands for a task in a place. Waits for nothing."""
        ...

    def worth(self, utilities: Sequence[float], tokens: Sequence[int], budget: int) -> Sequence[int]:
        """Return the positions of the pieces that are worth the most together within a budget."""
        ...
