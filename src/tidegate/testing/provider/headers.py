"""Headers that tell a client about its limits, in the forms that OpenAI uses."""

from __future__ import annotations

import math

from tidegate.testing.provider.buckets import AccountLimits, Dimension, RefillingBucket


def go_duration(seconds: float) -> str:
    """Write a duration as Go does, rounded up to a millisecond: `120ms`, `8.64s`, `6m0s`, `1h2m3.5s`."""
    total_ms = math.ceil(seconds * 1000 - 1e-6)
    if 0 < total_ms < 1000:
        return f"{total_ms}ms"
    minutes, ms = divmod(max(0, total_ms), 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{ms / 1000:g}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text


def retry_headers(wait_seconds: float) -> dict[str, str]:
    """Return both forms of "not before": whole seconds and milliseconds, rounded up, at least 1."""
    return {
        "retry-after": str(max(1, math.ceil(wait_seconds - 1e-6))),
        "retry-after-ms": str(max(1, math.ceil(wait_seconds * 1000 - 1e-6))),
    }


def limit_headers(limits: AccountLimits) -> dict[str, str]:
    """Return limit, remaining and reset of each limited dimension; the reset is the time to a full bucket."""
    return {**_of("requests", limits.requests), **_of("tokens", limits.tokens)}


def _of(dimension: Dimension, bucket: RefillingBucket | None) -> dict[str, str]:
    if bucket is None:
        return {}
    return {
        f"x-ratelimit-limit-{dimension}": str(math.floor(bucket.limit)),
        f"x-ratelimit-remaining-{dimension}": str(math.floor(bucket.level + 1e-6)),
        f"x-ratelimit-reset-{dimension}": go_duration(bucket.reset_seconds()),
    }
