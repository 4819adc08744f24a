"""Tries the tools of a pack in the real sandboxes, without a mesh."""
