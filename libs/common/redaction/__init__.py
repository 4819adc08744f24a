"""Finds sensitive parts of JSON values and of text, and removes them. Pure: no clock, no network, no state but caches.

`scanner.Scanner` is the way in. What it removes is replaced by `[redacted:kind]` and named by place and kind, never by value.
"""
