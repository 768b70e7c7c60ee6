"""Decides how fast tasks and calls may start: pure rules for gates, rate limits and the retry budget.

Each rule takes a gate's stored row and the current time and returns the next row. The store reads the row,
applies the rule and writes the result in one transaction. The other half is `calls/`, which asks for a permit
before each call and reports how the call ended.

Where things are decided:

| question | module |
|---|---|
| Which tasks may a claim start, and when? | `admission.py` |
| May this single call start? | `call_slots.py` |
| Why are the tasks of a gate blocked? | `blocks.py` |
| When may one task test a closed gate? | `probes.py` |
| What does a 429, an outage or a success do to the gate? | `gate.py`: `apply_failure`, `apply_success` |
| The same for a stored row, with its keys, old calls and probes | `gate_rows.py` |
| When is the next slot of a rate limit free? | `token_bucket.py` |
| How many tokens will a call use, and what if it used others? | `tokens.py` |
| What do response headers show of the provider's limits? | `learned_limits.py` |
| How fast may runs start after 429s? | `rate_learning.py` |
| Does an upstream answer nobody any more? | `silence.py` |
| How many runs at once can an upstream work on? | `in_flight_learning.py` |
| How many retries may leave for the main queue? | `retry_budget.py`, `promotion.py` |
| How are limits declared, stored and shown? | `options.py`, `settings.py`, `values.py`, `formatting.py` |

`providers/` decides first whether a failed response is a rate limit at all.

To add a limit: name it in `options.UpstreamLimits` and `make_limits`, keep its value in `settings.Limits` and
its used amount in `values.GateRow`, and let `admission.GateCheck` check and charge it. `formatting.py` shows
it to people, and `gate_rows.with_limits` rescales the used amount when the limit changes.

Capabilities to come get a module each, called by `GateCheck`: `money.py` (spend per day and month),
`tenants.py` (limits keyed by tenant and function) and `routes.py` (which upstream of a route is charged).
"""
