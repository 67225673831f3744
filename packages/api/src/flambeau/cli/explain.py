"""`flambeau explain`: what is compiled of a script, or of a function.

In: `script.py` with its words, or `model.py:function`. Out: what `flambeau.explain` says of each region, on the terminal, as JSON, as pages.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from .failures import BadInput, raised
from .programs import arguments_of, function_named, made_by, run_script

if TYPE_CHECKING:
    from ..explanation import Explanation


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("target")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--make", is_flag=True, help="The function returns what is explained: (model, args) or (model, args, kwargs)."
)
@click.option("--arguments", default="{}", help="Of flambeau.compile for a function, as JSON: '{\"dynamic\": true}'.")
@click.option("--json", "as_json", is_flag=True, help="JSON on standard output: a list with an object for each region.")
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Also a page; further regions beside it, numbered."
)
@click.option("--verbose", is_flag=True, help="Every guard and every kernel.")
@click.option("--measure/--no-measure", default=True, show_default=True, help="Run graphs again, for times and memory.")
def explain(
    target: str,
    words: tuple[str, ...],
    make: bool,
    arguments: str,
    as_json: bool,
    html: Path | None,
    verbose: bool,
    measure: bool,
) -> None:
    """Run TARGET and say what was compiled: script.py, whose calls of flambeau.compile count, or model.py:function, which is compiled and called without arguments.

    Options go before TARGET; what is behind it is the script's.
    """
    if not _is_function(target) and (make or arguments != "{}"):
        raise BadInput(
            "--make and --arguments are for a function, model.py:function; a script calls flambeau.compile itself"
        )
    # What the program prints is no JSON.
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        found = (
            [_explained(target, words, make, arguments, measure)]
            if _is_function(target)
            else _of_script(target, words, measure)
        )
    if as_json:
        click.echo(json.dumps([each.to_dict() for each in found], indent=1))
    else:
        console = Console()
        for each in found:
            console.print(each.rich(verbose=verbose))
    for number, each in enumerate(found if html is not None else ()):
        assert html is not None
        page = html if number == 0 else html.with_stem(f"{html.stem}-{number}")
        each.save_html(page)
        click.echo(str(page), err=True)


def _is_function(target: str) -> bool:
    return ":" in target and not Path(target).exists()


def _explained(target: str, words: Sequence[str], make: bool, arguments: str, measure: bool) -> Explanation:
    from ..explain import explain as explained

    if words:
        raise BadInput(
            f"a function takes no words, but {' '.join(words)!r} stands behind it; options go before {target}"
        )
    given = arguments_of(arguments)
    function = function_named(target)
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if make:
        function, args, kwargs = made_by(function, target)
    try:
        return explained(function, measure=measure, **given)(*args, **kwargs)
    except Exception as error:
        raise _told(target, error) from error


def _of_script(path: str, words: Sequence[str], measure: bool) -> list[Explanation]:
    from ..explain import explain_program

    found = explain_program(lambda: run_script(path, words), measure=measure)
    if not found:
        raise BadInput(f"{path} called nothing that flambeau.compile made; model.py:function compiles a function")
    return found


def _told(target: str, error: Exception) -> Exception:
    from ..errors import FlambeauError

    return error if isinstance(error, FlambeauError) else raised(target, error)
