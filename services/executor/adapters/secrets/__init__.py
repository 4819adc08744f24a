"""Where the credentials of tools come from."""
