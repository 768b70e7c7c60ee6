"""Makes calls to upstreams: asks for a permit before each call and reports how the call ended.

The store keeps the gates, and `limits/` holds the rules by which the gates change. This package uses both.

The path of one call, and where each step is decided:

1. `transport/transport.py` (for an SDK) or `manual_call.py` (for any other client) starts the call.
   `requests.py` fills in the `PermitRequest` from the running task.
2. `permit_source.py`, `GatePermitSource.acquire`, grants the permit. It waits for a slot, which the store
   grants with `limits.call_slots.take_call_slot`, and chooses an API key (`keys.py`). `wait_queue.py` holds
   the calls of this process that wait for a place in flight.
3. `providers/` reads the response: it decides whether this is a rate limit and which wait is named.
   `limit_reports.py` collects the limits that the headers show.
4. `gate_permit.py`, `GatePermit.settle`, ends the call, and `reports.py` reports a 429 or an outage to the
   store. `limits.gate.apply_failure` then decides what that does to the gate.

The tokens of a run's first call are settled by the end of the run; those of other calls by
`token_settlements.py`.

To add a limit, start in `limits/`, whose docstring lists the steps. Limits on money and tenants need no new
step here: `PermitRequest` in `permits.py` carries what they charge, and the usage that `settle` receives
corrects the estimate. Routes, which choose between
upstreams, will get a `PermitSource` of their own in front of several `GatePermitSource`s.
"""
