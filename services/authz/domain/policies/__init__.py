"""Policy sets: storing, validating, activating, explaining and replaying them."""
