"""Scans the texts and names of a manifest for prompt injection and deceptive characters. Pure."""
