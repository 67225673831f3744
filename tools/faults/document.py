"""The outcomes as a page.

In: outcomes. Out: the text of `docs/seeded-faults.md`.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .run import Outcome

_HEAD = """# Seeded faults

What `flambeau bisect` and `flambeau minify` make of faults that were put into flambeau's own sources, one at a time (`tools/faults/table.py`), each with a program in which
it shows (`tools/faults/programs`). Written by

```sh
nox -s faults -- --jobs 2 --write
```

{measured}: {named} of their stages are named, and {shrunk} of their programs, of {least} to {largest} operations, come down to {most} operations or fewer, in a script that fails with the fault
and not without it. Both tools together took {seconds:.0f} s a fault in the median; what is not shrunk was not done when both had taken {limit:.0f} s.
Operations are those of the graph that fails; where the script itself was shrunk, because no graph fails by itself, those of all its graphs. Seconds depend on what else the machine had to do.

| fault | stage | what `bisect` says | operations | seconds |
| --- | --- | --- | ---: | ---: |
"""


def document(outcomes: Sequence[Outcome], most: int, total: int, limit: float) -> str:
    """The page."""
    named, shrunk = sum(o.named for o in outcomes), sum(o.shrunk for o in outcomes)
    times = [o.bisect_seconds + o.minify_seconds for o in outcomes]
    sizes = [o.before for o in outcomes if o.before >= 0]
    count = len(outcomes)
    head = _HEAD.format(
        measured=f"All {total} faults of the table are measured"
        if count == total
        else f"Of {total} faults of the table {count} are measured",
        named=named,
        shrunk=shrunk,
        most=most,
        least=min(sizes),
        largest=max(sizes),
        limit=limit,
        seconds=statistics.median(times),
    )
    return head + "".join(map(_row, outcomes))


def _row(outcome: Outcome) -> str:
    said = outcome.found + (f": {outcome.detail}" if outcome.detail else "")
    said = said if outcome.named else f"**{said or 'no answer'}**"
    sizes = f"{outcome.before} → {outcome.operations}" if outcome.operations >= 0 else "not shrunk"
    sizes = sizes if outcome.shrunk else f"**{sizes}**"
    seconds = f"{outcome.bisect_seconds:.0f} + {outcome.minify_seconds:.0f}"
    return f"| {outcome.name} | {outcome.expected} | {said} | {sizes} | {seconds} |\n"
