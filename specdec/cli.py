"""The `specdec` command. Checking an exercise often needs no torch, which takes seconds to import: so the commands that do come late."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from specdec.console import clear_errors, new_console, print_anything


class _Commands(TyperGroup):
    """The commands here, and those of `commands` when one of them is asked for, or the list of all."""

    def list_commands(self, context: Any) -> list[str]:
        return [*_others().list_commands(context), *super().list_commands(context)]

    def get_command(self, context: Any, name: str) -> Any:
        return super().get_command(context, name) or _others().get_command(context, name)


def _others() -> Any:
    from specdec import commands

    return typer.main.get_command(commands.app)


app = typer.Typer(
    cls=_Commands, help="Speculative decoding on a real language model.", no_args_is_help=True, add_completion=False,
    rich_markup_mode=None,
)  # fmt: skip


@app.callback()
def main() -> None:
    print_anything()


@app.command()
def check(chapter: Annotated[str, typer.Argument(help="02, or nothing for how far you are in the course.")] = "") -> None:
    """Check your notebook in chapters/ from the shell; the exit code is 0 if everything passes."""
    try:
        from autograder import selfcheck
    except ImportError as error:
        raise typer.BadParameter(f"{error}; checking needs the project with its extra `grade`: pip install -e '.[grade]'") from error

    with clear_errors():
        if not selfcheck.run(chapter, new_console()):
            raise typer.Exit(1)
