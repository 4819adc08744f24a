"""Computes relevance and rank.

Relevance, 0 to 1, in this order:

- 1 for a tool that is named.
- 0.7 to 1 for a tool that has every word of the query, by its words alone, so that keyword queries keep their results.
- Below 0.6 for every other tool: 0.9 semantic and 0.1 lexical score, or the lexical score while it has no vector.

Requested capabilities make up half of it, or all of it without a text.

Relevance decides the order. The rank, a composite of trust, relevance, latency and cost, orders tools whose relevance
is about the same: a band begins with the most relevant tool left, and holds those at most a few percent below it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

TRUST, RELEVANCE, LATENCY, COST = 0.4, 0.3, 0.2, 0.1
# Cosines of this model: unrelated texts stay below the first, paraphrases reach the second.
UNRELATED, SAME = 0.05, 0.70
# A tool below this cosine is no candidate unless its words match.
FITS = 0.18
_SEMANTIC, _LEXICAL, _CEILING, _ALL_WORDS = 0.9, 0.1, 0.6, 0.7
# The longest time limit that a manifest may name, used without a latency filter.
LONGEST_SECONDS = 86_400.0
NEUTRAL = 0.5
# How far, as a share, relevance may lie below that of the first tool of a band.
BAND = 0.02

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Signals:
    """The signals of each row."""

    exact: Mask
    lexical: Floats
    all_words: Mask
    cosine: Floats
    embedded: Mask
    capability: Floats


def nearness(cosine: Floats) -> Floats:
    """Spread the useful range of the cosine over 0 to 1."""
    near: Floats = np.clip((cosine - UNRELATED) / (SAME - UNRELATED), 0, 1)
    return near


def relevance(signals: Signals, *, text: bool, capabilities: bool) -> Floats:
    """Return the relevance of each row."""
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
    """Return a mask of the candidate rows."""
    if not text and not capabilities:
        return np.ones(len(signals.exact), dtype=np.bool_)
    by_text = (signals.lexical > 0) | (signals.embedded & (signals.cosine >= FITS))
    mask: Mask = signals.exact | (by_text & text) | ((signals.capability > 0) & capabilities)
    return mask


def latency_component(seconds: Floats, longest: float | None) -> Floats:
    """Return 1 for zero latency, 0 for the longest allowed."""
    component: Floats = 1 - np.clip(seconds / np.float32(longest or LONGEST_SECONDS), 0, 1)
    return component


def cost_component(cost: Floats, highest: float | None) -> Floats:
    """Return 1 for free, 0 for the highest allowed or found cost, 0.5 for an unknown cost."""
    known = ~np.isnan(cost)
    top = highest if highest is not None else float(cost[known].max()) if known.any() else 0.0
    share = np.clip(cost / np.float32(top), 0, 1) if top > 0 else np.zeros_like(cost)
    component: Floats = np.where(known, 1 - share, NEUTRAL).astype(np.float32)
    return component


def composite(trust: Floats, fits: Floats, latency: Floats, cost: Floats) -> Floats:
    """Return the rank of each row."""
    score: Floats = TRUST * trust + RELEVANCE * fits + LATENCY * latency + COST * cost
    return score


def top_rows(exact: Mask, fits: Floats, score: Floats, most: int) -> npt.NDArray[np.int64]:
    """Return the positions of the best rows, best first: by relevance, and by rank among rows of about the same
    relevance. Named tools come first. The sorts are stable."""
    relevant = fits.astype(np.float64) + exact
    among = np.arange(len(relevant))
    if most < len(relevant):
        # Only the best are sorted, with all that may be in the same band as the last of them.
        among = np.flatnonzero(relevant >= np.partition(relevant, -most)[-most] * (1 - BAND))
    among = among[np.argsort(-relevant[among], kind="stable")]
    chosen, start = list[npt.NDArray[np.int64]](), 0
    while start < min(most, len(among)):
        lowest = relevant[among[start]] * (1 - BAND)
        end = int(np.searchsorted(-relevant[among], -lowest, side="right"))
        band = among[start:end]
        chosen.append(band[np.argsort(-score[band], kind="stable")])
        start = end
    return np.concatenate(chosen)[:most] if chosen else among
