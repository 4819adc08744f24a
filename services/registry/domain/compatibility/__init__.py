"""Compatibility of tool versions: schema containment proofs, rules for other manifest fields, and the required bump."""
