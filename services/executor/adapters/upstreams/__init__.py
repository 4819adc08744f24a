"""Servers outside the mesh, as this executor reaches them."""
