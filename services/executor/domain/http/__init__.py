"""HTTP endpoints as tools: how arguments become a request."""
