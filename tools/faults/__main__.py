"""`python -m tools.faults`."""

from __future__ import annotations

from .run import main

raise SystemExit(main())
