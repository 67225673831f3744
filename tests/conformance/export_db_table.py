"""Which examples of `torch._export.db` are one graph: `python -m tests.conformance.export_db_table`.

In: nothing. Out: a table on standard output, one row per example with its graphs, its breaks and the first break's reason.
"""

from __future__ import annotations

import copy

from rich.console import Console
from rich.table import Table
from torch._export.db.examples import all_examples

import flambeau


def main() -> None:
    """Explain every example with backend "eager" and print the table."""
    table = Table(title="torch._export.db")
    for heading in ("example", "graphs", "breaks", "first break"):
        table.add_column(heading)
    whole = 0
    examples = all_examples()
    for name, case in sorted(examples.items()):
        args, kwargs = copy.deepcopy((case.example_args, case.example_kwargs or {}))
        try:
            explanation = flambeau.explain(case.model, backend="eager")(*args, **kwargs)
        except Exception as error:
            table.add_row(name, "-", "-", f"raises {type(error).__name__}, as in eager")
            continue
        one = explanation.graph_break_count == 0
        whole += one
        first = explanation.breaks[0] if explanation.breaks else None
        reason = "" if first is None else f"{first.code}: line {first.line}"
        table.add_row(name, str(explanation.graph_count), str(explanation.graph_break_count), reason)
    console = Console(width=130)
    console.print(table)
    console.print(f"{whole} of {len(examples)} without a break")


if __name__ == "__main__":
    main()
