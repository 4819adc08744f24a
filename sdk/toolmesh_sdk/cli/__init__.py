"""The `toolmesh` command line. No module here imports gRPC before a command needs it."""
