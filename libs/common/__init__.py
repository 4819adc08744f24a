"""The library that all services share. Imported before gRPC, so gRPC's environment variables are set here."""

import os

# Child processes execute another program at once. gRPC's fork support would prepare each of them to use gRPC, and under
# load one in a hundred dies of that.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
