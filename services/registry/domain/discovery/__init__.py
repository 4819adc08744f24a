"""Tool search, and tool surfaces that fit a token budget."""
