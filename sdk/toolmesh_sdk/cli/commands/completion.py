"""`toolmesh completion`: prints the script with which a shell completes the command line."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

PROGRAM = "toolmesh"
VARIABLE = "_TOOLMESH_COMPLETE"


class Shell(StrEnum):
    """A shell that completes commands, options, contexts and tools."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="Your shell.")]) -> None:
    """Print the completion script of a shell.

    \b
    Examples:
      eval "$(toolmesh completion bash)"
      toolmesh completion fish > ~/.config/fish/completions/toolmesh.fish
    """
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell)
    sys.stdout.write(script + "\n")
