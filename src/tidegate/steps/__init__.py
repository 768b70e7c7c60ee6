"""Steps: pieces of a task whose results are kept, so that a re-run does not do (or pay for) them again.

`doing` does a step: it looks for a recorded result, records the intent, calls the function and records the
result. `execution` holds what a step is made of. `run_steps` gives each step of a run its identity. `port`
is how both reach the store from the event loop, a thread or a child process; the worker implements it.
`cache` gives work that tasks share its identity.
`current` is what the transports read: the step that a call belongs to.
"""

from tidegate.steps.cache import Cache, CacheScope, cache_options
from tidegate.steps.current import CurrentStep, current_step
from tidegate.steps.doing import do_step, do_step_sync
from tidegate.steps.execution import StepExecution, StepLost, StepRefused, refusal_of
from tidegate.steps.options import InDoubt, OnChange, StepDone, step_options
from tidegate.steps.port import NotRecorded, StepPort, answered
from tidegate.steps.run_steps import RunSteps

__all__ = [
    "Cache",
    "CacheScope",
    "CurrentStep",
    "InDoubt",
    "NotRecorded",
    "OnChange",
    "RunSteps",
    "StepDone",
    "StepExecution",
    "StepLost",
    "StepPort",
    "StepRefused",
    "answered",
    "cache_options",
    "current_step",
    "do_step",
    "do_step_sync",
    "refusal_of",
    "step_options",
]
