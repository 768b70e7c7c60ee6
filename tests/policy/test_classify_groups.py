"""What an exception group means."""

import asyncio

import httpx2
from classify_support import (
    PERMANENT,
    TRANSIENT,
    UNKNOWN,
    ApiError,
    answered,
    chained,
    failure_of,
    meaning_of,
)

from tidegate.domain.failure import Reason


def test_the_member_with_the_longest_wait_decides_for_a_group():
    group = ExceptionGroup("g", [httpx2.ReadTimeout("slow"), answered(429, None, {"Retry-After": "30"})])
    failure = failure_of(group)
    assert (failure.verdict, failure.reason, failure.wait_seconds) == (TRANSIENT, Reason.RATE_LIMIT, 30.0)
    assert failure.error_class == "ExceptionGroup"
    assert failure.message == f"g (2 sub-exceptions): {ApiError.__module__}.ApiError: the call failed"


def test_one_permanent_member_makes_a_group_permanent():
    group = ExceptionGroup("g", [TimeoutError(), ExceptionGroup("h", [ValueError(), answered(401)])])
    assert meaning_of(group) == (PERMANENT, Reason.AUTH)


def test_one_unknown_member_makes_a_group_unknown():
    assert meaning_of(ExceptionGroup("g", [TimeoutError(), ValueError()])) == (UNKNOWN, Reason.UNKNOWN)


def test_cancelled_members_of_a_group_do_not_count():
    group = BaseExceptionGroup("g", [asyncio.CancelledError(), answered(503)])
    assert meaning_of(group) == (TRANSIENT, Reason.OVERLOADED)
    assert meaning_of(BaseExceptionGroup("g", [asyncio.CancelledError()])) == (TRANSIENT, Reason.CANCELLED)


def test_a_group_is_classified_by_its_members_even_with_a_specific_context():
    group = chained(ExceptionGroup("g", [answered(401)]), context=TimeoutError())
    assert meaning_of(group) == (PERMANENT, Reason.AUTH)


def test_a_group_behind_a_wrapper_is_found():
    assert meaning_of(chained(RuntimeError(), cause=ExceptionGroup("g", [answered(503)]))) == (
        TRANSIENT,
        Reason.OVERLOADED,
    )


def test_groups_nested_beyond_reason_are_unknown():
    group = ExceptionGroup("g", [answered(503)])
    for _ in range(500):
        group = ExceptionGroup("g", [group])
    assert meaning_of(group) == (UNKNOWN, Reason.UNKNOWN)
