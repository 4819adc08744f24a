"""The `toolmesh` command line. Modules import gRPC lazily, so that help stays fast."""
