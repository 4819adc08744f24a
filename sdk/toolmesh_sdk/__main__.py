"""Runs the command line: `python -m toolmesh_sdk`."""

from toolmesh_sdk.cli.main import run

if __name__ == "__main__":
    run()
