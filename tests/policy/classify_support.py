"""Errors as SDKs raise them, and what they are classified as."""

import json
from types import SimpleNamespace

from stand_ins import NOW
from tidegate.domain.failure import Verdict
from tidegate.policy.classify import classify

TRANSIENT, PERMANENT, UNKNOWN = Verdict.TRANSIENT, Verdict.PERMANENT, Verdict.UNKNOWN


class ApiError(Exception):
    """An SDK's error that keeps its facts as attributes."""

    def __init__(self, message="the call failed", **facts):
        super().__init__(message)
        vars(self).update(facts)


def answered(status, body=None, headers=()):
    return ApiError(
        response=SimpleNamespace(status_code=status, headers=dict(headers), text=json.dumps(body))
    )


def failure_of(exc, **options):
    return classify(exc, now=NOW, **options).failure


def meaning_of(exc, **options):
    failure = failure_of(exc, **options)
    return failure.verdict, failure.reason


def chained(outer, cause=None, context=None):
    outer.__cause__, outer.__context__ = cause, context
    # Setting a cause suppresses the context, as `raise … from …` does.
    outer.__suppress_context__ = cause is not None
    return outer
