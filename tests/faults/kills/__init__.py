"""Processes killed at random moments, under load, again and again: nothing accepted is lost and nothing happens twice."""
