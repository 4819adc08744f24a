"""Credentials that are OAuth 2 clients: services get the tokens that these are granted."""
