"""The credentials of tools: their form, an encrypted folder, and mounted files."""
