"""The local mesh's commands as a program of their own, so that they are tested without the rest of the command line."""

import typer

from localmesh.commands import register

app = typer.Typer(pretty_exceptions_enable=False)
register(app)

if __name__ == "__main__":
    app(prog_name="toolmesh")
