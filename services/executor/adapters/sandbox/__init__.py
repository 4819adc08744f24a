"""Places to run code that nobody has to trust."""
