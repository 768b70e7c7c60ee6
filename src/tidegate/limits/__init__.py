"""The rules of limits, pure and below the store: gates, buckets, retry budget, learned limits and rates.

Each rule takes a gate's stored row and the present moment and returns the next row; a back end of the store
writes it. Rules to come have their place here: `tokens.py` (input and output tokens a minute), `money.py`
(spend per day and month), `tenants.py` (limits keyed by tenant and function) and `routes.py` (which upstream
of a route is charged).
"""
