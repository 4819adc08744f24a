"""The commands of `toolmesh deploy` alone, for jobs of a cluster: `python -m localmesh.deploy init-certs`."""

from localmesh.deploy.commands import app

if __name__ == "__main__":
    app()
