"""How far a tool can be trusted: facts that are recorded, a score that follows from them, and stages with gates."""
