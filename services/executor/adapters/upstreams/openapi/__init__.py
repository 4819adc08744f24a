"""Reads OpenAPI documents."""
