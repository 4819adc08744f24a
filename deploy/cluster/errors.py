"""The failure that every step of the cluster raises."""

from __future__ import annotations


class ClusterError(Exception):
    """A step failed. The message says what is wrong and what to do, in words for the person at the terminal."""
