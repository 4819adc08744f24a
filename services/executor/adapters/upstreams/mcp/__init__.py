"""A client of MCP servers, over standard input and output and over Streamable HTTP."""
