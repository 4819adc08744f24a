"""`python -m toolmesh_sdk` is the command line."""

from toolmesh_sdk.cli.main import run

if __name__ == "__main__":
    run()
