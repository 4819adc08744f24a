"""The launcher: a small process that starts and supervises bubblewrap sandboxes.

It loads this package and the standard library only (an import contract in pyproject.toml), so that it starts fast and
holds nothing of the executor.
"""
