"""Logs: silent until the program configures structlog, warnings excepted; structlog's from then on."""

from __future__ import annotations

import structlog
from both_ways import eager

from flambeau_capture import log, make_region


def _run():
    region = make_region(lambda x, n: x + n, eager, recompile_limit=1, dynamic=False)
    import torch

    for n in (2, 3, 4):
        region(torch.ones(2), n)


def test_unconfigured_logs_show_warnings_alone(capsys, caplog):
    """Guards and recompiles are not printed; the limit is told through the standard library's logger."""
    structlog.reset_defaults()
    _run()
    assert capsys.readouterr().out == ""
    assert [record.levelname for record in caplog.records if record.name == "flambeau.capture"] == ["WARNING"]
    assert log.RECOMPILE_LIMIT in caplog.text


def test_a_configured_structlog_gets_everything():
    """The same events, with their values."""
    with structlog.testing.capture_logs() as events:
        structlog.configure(processors=structlog.get_config()["processors"])
        _run()
    structlog.reset_defaults()
    assert {log.GUARDS, log.RECOMPILE_LIMIT} <= {event["event"] for event in events}
