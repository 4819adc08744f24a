"""How well tools fit, and which of them comes first.

Relevance, 0 to 1, in this order:
- 1 for a tool that is named.
- 0.7 to 1 for a tool that has every word of the question, by its words alone: whoever types keywords gets what keywords
  always gave, and meaning never pushes that down.
- below 0.6 for every other tool: 0.9 of its nearness in meaning and 0.1 of its words, and words alone while it has no vector.
Where capabilities were asked for, they are half of it, or all of it without a text.

The rank is chapter 14's composite. Tools that fit half as well as the best, or worse, come after all that fit better:
trust must not lift a tool that does something else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

TRUST, RELEVANCE, LATENCY, COST = 0.4, 0.3, 0.2, 0.1
# Cosines of this model: unrelated texts stay below the first, paraphrases reach the second.
UNRELATED, SAME = 0.05, 0.70
# Below this a tool does not fit at all, unless its words do.
FITS = 0.18
_SEMANTIC, _LEXICAL, _CEILING, _ALL_WORDS = 0.9, 0.1, 0.6, 0.7
# The longest time limit that a manifest may name; who states no limit of its own hardly cares.
LONGEST_SECONDS = 86_400.0
NEUTRAL = 0.5

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Signals:
    """What is known about each row's fit."""

    exact: Mask
    lexical: Floats
    all_words: Mask
    cosine: Floats
    embedded: Mask
    capability: Floats


def nearness(cosine: Floats) -> Floats:
    """FastHistogram the useful range of the cosine over 0 to 1."""
    near: Floats = np.clip((cosine - UNRELATED) / (SAME - UNRELATED), 0, 1)
    return near


def relevance(signals: Signals, *, text: bool, capabilities: bool) -> Floats:
    """Return how well each row fits."""
    near = nearness(signals.cosine)
    blended = np.where(signals.embedded, _SEMANTIC * near + _LEXICAL * signals.lexical, signals.lexical)
    worded = np.where(signals.all_words, _ALL_WORDS + (1 - _ALL_WORDS) * signals.lexical, _CEILING * blended)
    if capabilities:
        worded = (worded + signals.capability) / 2 if text else signals.capability
    elif not text:
        worded = np.ones_like(signals.lexical)
    fits: Floats = np.where(signals.exact, 1.0, worded).astype(np.float32)
    return fits


def matching_rows(signals: Signals, *, text: bool, capabilities: bool) -> Mask:
    """Return which rows fit at all."""
    if not text and not capabilities:
        return np.ones(len(signals.exact), dtype=np.bool_)
    by_text = (signals.lexical > 0) | (signals.embedded & (signals.cosine >= FITS))
    found: Mask = signals.exact | (by_text & text) | ((signals.capability > 0) & capabilities)
    return found


def latency_component(seconds: Floats, longest: float | None) -> Floats:
    """Return 1 for at once, 0 for the longest allowed."""
    found: Floats = 1 - np.clip(seconds / np.float32(longest or LONGEST_SECONDS), 0, 1)
    return found


def cost_component(cost: Floats, highest: float | None) -> Floats:
    """Return 1 for free, 0 for the highest allowed or found; half where nobody knows."""
    known = ~np.isnan(cost)
    top = highest if highest is not None else float(cost[known].max()) if known.any() else 0.0
    share = np.clip(cost / np.float32(top), 0, 1) if top > 0 else np.zeros_like(cost)
    found: Floats = np.where(known, 1 - share, NEUTRAL).astype(np.float32)
    return found


def composite(trust: Floats, fits: Floats, latency: Floats, cost: Floats) -> Floats:
    """Return the rank of each row."""
    score: Floats = TRUST * trust + RELEVANCE * fits + LATENCY * latency + COST * cost
    return score


def foremost(exact: Mask, fits: Floats, score: Floats, most: int) -> npt.NDArray[np.int64]:
    """Return the positions of the best, the best first: what is named, then what fits about as well as the best, then the rest.
    Equals keep the order they came in."""
    near = fits > fits.max() / 2 if len(fits) else fits > 0
    # A score is at most one, so each step is above all that the one below it can reach.
    rank = score.astype(np.float64) + 2.0 * near + 4.0 * exact
    among = np.arange(len(rank))
    if most < len(rank):
        # Only the best are put in order; all that equal the last of them are among those.
        among = np.flatnonzero(rank >= np.partition(rank, -most)[-most])
    return among[np.argsort(-rank[among], kind="stable")][:most]
