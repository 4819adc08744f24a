"""What every service shares. Imported before gRPC is, so what gRPC reads from the environment is said here."""

import os

# Children of ours become other programs at once. gRPC would ready each of them to go on using it, and under load one in
# a hundred dies of that before it has begun.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
