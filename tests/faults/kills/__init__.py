"""Processes killed at random moments, under load: nothing accepted is lost and nothing happens twice."""
