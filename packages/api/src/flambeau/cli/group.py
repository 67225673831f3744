"""The group of all commands: which there are, where each lies, and what an error looks like.

In: a command line. Out: the command's output. Help and version load no command; an error is one line and exit status 2 where what was given is at
fault, 1 where something else is; with a traceback only under `FLAMBEAU_VERBOSE=1`.
To add a command: a module beside this one with a click command named as the module, and a row in `COMMANDS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

import click

from flambeau_runtime.errors import BuildError, CompilerUnavailable, PredictionError

from .. import __version__
from ..defaults import is_verbose
from ..errors import FlambeauError, UnknownName
from .failures import BadInput, one_line

#: Command -> what `flambeau --help` says of it. The module of that name beside this one has the command.
COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "bench": "Time a model in eager, under flambeau's modes and under torch.compile.",
        "bisect": "Name the stage at fault in a script that fails.",
        "cache": "List, clear, export and import what is kept on disk.",
        "doctor": "Look at the surroundings and compile something small on every device.",
        "explain": "Run a script or a function, and say what was compiled of it.",
        "kernels": "Time the kernels of a program again, with their bandwidth.",
        "minify": "Shrink a script that fails to a few operations.",
        "report": "Show what was compiled as a page, of a folder that FLAMBEAU_TRACE named.",
    }
)


#: Errors that no other input would mend: ours, which are AssertionErrors in every package, and the machine's.
_OURS = (AssertionError, BuildError, CompilerUnavailable, PredictionError)
_OF_FILES = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)


class _Commands(click.Group):
    """Commands that are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS:
            raise UnknownName("command", args[0], COMMANDS)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"{__package__}.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # who reads has enough: click ends the process
        except (FlambeauError, OSError) as error:
            if is_verbose():
                raise
            given = isinstance(error, _OF_FILES) if isinstance(error, OSError) else not isinstance(error, _OURS)
            raise (BadInput if given else click.ClickException)(one_line(error)) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="flambeau")
def main() -> None:
    """Look at what flambeau sees, keeps and does on this machine."""
