"""The application of the demo's worker: the example, with functions that record their runs."""

from __future__ import annotations

import os

from tidegate.internals import core_of
from tidegate.testing.checker import FunctionRecorder
from tidegate.testing.demo.example import LEDGER_VARIABLE, load_example

app = load_example().app
_recorder = FunctionRecorder(os.environ[LEDGER_VARIABLE])
for _function in core_of(app).functions.values():
    _recorder.record_runs(_function)
