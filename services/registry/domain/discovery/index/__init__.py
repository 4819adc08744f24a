"""Every tool in columns, so that a search costs array arithmetic. The only part of discovery that needs numpy, and it is
imported when the first question comes: a registry that nobody searches does without its 15 MB."""
