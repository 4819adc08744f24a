"""`toolmesh deploy backup` and `toolmesh deploy restore`: the database and the keys of a cluster's mesh, encrypted."""
