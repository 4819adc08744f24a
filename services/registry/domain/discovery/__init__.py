"""Finding tools, and fitting what is shown of them into a budget."""
