"""Finds and removes sensitive parts of JSON values and text. Pure: no clock, no network, no state but caches.

The entry point is `scanner.Scanner`. Removed parts become `[redacted:kind]` and are reported by pointer and kind, never
by value.
"""
