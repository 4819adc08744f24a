"""Private: transport, message conversion and retries of both clients. Public names are in `toolmesh_sdk`."""
