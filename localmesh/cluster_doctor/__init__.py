"""`toolmesh deploy doctor`: what is wrong with the mesh of a cluster, and what to do."""
