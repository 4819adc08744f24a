"""Sets of policies: putting, validating, activating, explaining and replaying them."""
