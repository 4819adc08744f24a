"""The fixtures of the conformance suite, as an MCP server of its own: the mesh connects it as an upstream."""
