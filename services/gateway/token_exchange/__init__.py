"""OAuth 2.0 Token Exchange (RFC 8693): the token endpoint for clients that speak OAuth."""
