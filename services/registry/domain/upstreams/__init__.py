"""Servers outside the mesh, and their tools."""
