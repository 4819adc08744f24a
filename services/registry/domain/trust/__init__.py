"""Trust: recorded facts, the score computed from them, and contribution stages with gates."""
