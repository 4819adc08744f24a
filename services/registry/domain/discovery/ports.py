"""The ports of discovery."""

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
    """The language process did not answer; the next call starts a new one."""


class Language(Protocol):
    """Embeds texts and counts tokens."""

    @property
    def model(self) -> str:
        """The name of the model. Vectors of different models cannot be compared."""
        ...

    @property
    def tokenizers(self) -> Sequence[str]:
        """The names of the tokenizers, the default first."""
        ...

    async def embed(self, texts: Sequence[str], *, background: bool = False) -> Sequence[bytes]:
        """Return the embedding of each text as half floats. Raises LanguageUnavailableError."""
        ...

    async def count(self, texts: Sequence[str], tokenizer: str) -> Sequence[int]:
        """Return the token count of each text. Raises LanguageUnavailableError."""
        ...


@dataclass(frozen=True, slots=True)
class VectorClaim:
    """A manifest that this process has claimed to embed."""

    digest: str
    manifest: Manifest


class Vectors(Protocol):
    """The embeddings of manifests by digest, shared by all replicas."""

    async def claim(self, limit: int) -> Sequence[VectorClaim]:
        """Claim manifests that have no vector and no other claim. A claim expires if no vector is stored."""
        ...

    async def put(self, vectors: Mapping[str, bytes]) -> None:
        """Store vectors by the digests of their manifests."""
        ...

    async def release(self, digests: Sequence[str]) -> None:
        """Release claims, so that another process can take them at once."""
        ...

    async def load(self, digests: Sequence[str]) -> Mapping[str, bytes]:
        """Return the vectors that exist."""
        ...


class Searcher(Protocol):
    """The in-memory search index."""

    def search(self, query: Query, now: datetime) -> Hits:
        """Return the matching tools, ranked. Does not block."""
        ...

    def assess_eligibility(self, query: Query, environment: SurfaceEnvironment, now: datetime) -> Eligibility:
        """Return the eligibility of every tool for a task in an environment. Does not block."""
        ...

    def select_within_budget(self, utilities: Sequence[float], tokens: Sequence[int], budget: int) -> Sequence[int]:
        """Return the positions of the most valuable pieces within a budget."""
        ...
