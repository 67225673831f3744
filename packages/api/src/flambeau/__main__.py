"""`python -m flambeau`: the command `flambeau`, where it is not installed."""

from __future__ import annotations

from .cli import main

main(prog_name="flambeau")
