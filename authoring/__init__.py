"""The author's side: checks manifests and packs before a mesh sees them."""
