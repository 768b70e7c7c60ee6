"""What happens at a call to an upstream: permits, keys, the HTTP transport, reports to the gate.

Above the store, which keeps the gates and charges the limits by the rules of `limits/`.
"""
