"""The record of a trial, one line of JSON per request: what a file of the ledger and a ConfigMap hold.

Where somebody watched the accelerator, a line before the requests of a run says what it did meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields

import orjson

from slotune.load.records import RequestRecord, RunResult

__all__ = ["record_lines"]

_FIELDS = tuple(field.name for field in fields(RequestRecord))


def record_lines(runs: Sequence[RunResult]) -> Iterator[bytes]:
    """A line per request, with its run, seed and rate; each ends with a newline. No prompt text is in it."""
    for number, run in enumerate(runs):
        if run.device is not None:
            device = {"run": number, "seed": run.seed, "rate": run.rate, "device": asdict(run.device)}
            yield orjson.dumps(device, option=orjson.OPT_APPEND_NEWLINE)
        for record in run.records:
            yield orjson.dumps(
                {
                    "run": number,
                    "seed": run.seed,
                    "rate": run.rate,
                    **{name: getattr(record, name) for name in _FIELDS},
                },
                option=orjson.OPT_APPEND_NEWLINE,
            )
