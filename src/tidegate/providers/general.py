"""Tables of what an HTTP status, an error code or a class name generally means.

If a code has another meaning for one provider, that belongs in its pack.
"""

from __future__ import annotations

import re

from tidegate.domain.failure import Reason, Verdict
from tidegate.providers.meaning import (
    AUTH,
    CANCELLED,
    CONTENT_POLICY,
    CONTEXT_LENGTH,
    CUT_OFF_BY_SETTING,
    INVALID,
    NETWORK,
    NO_MONEY,
    NOT_FOUND,
    NOTHING_KNOWN,
    OVERLOADED,
    RATE_LIMIT,
    SERVER_ERROR,
    TIMEOUT,
    TOO_LARGE,
    USED_UP,
    Meaning,
    codes,
    table,
)

CLIENT_FAULTS = frozenset({CUT_OFF_BY_SETTING, INVALID})
"""Faults of the caller's own configuration, which clients wrap in a connection error."""
TOO_LARGE_FOR_NOW = Meaning(Verdict.TRANSIENT, Reason.TOO_LARGE)
"""413 with Retry-After: the server states that it is temporary (RFC 9110 section 15.5.14). The status
concerns this request only, so only its task waits."""

_STATUS = {
    401: AUTH,
    402: NO_MONEY,
    403: AUTH,
    404: NOT_FOUND,
    408: TIMEOUT,
    # SDKs take it as a lock timeout and repeat the call.
    409: SERVER_ERROR,
    410: NOT_FOUND,
    413: TOO_LARGE,
    423: SERVER_ERROR,
    424: SERVER_ERROR,
    425: SERVER_ERROR,
    429: RATE_LIMIT,
    431: TOO_LARGE,
    # Two providers give it opposite meanings.
    498: NOTHING_KNOWN,
    499: CANCELLED,
    501: INVALID,
    503: OVERLOADED,
    504: TIMEOUT,
    505: INVALID,
    507: NOTHING_KNOWN,
    511: NETWORK,
    # Cloudflare's own statuses for problems on the way to the origin server.
    521: NETWORK,
    522: TIMEOUT,
    523: NETWORK,
    524: TIMEOUT,
    525: NETWORK,
    526: NETWORK,
    527: NETWORK,
    529: OVERLOADED,
}

_MONEY = re.compile(
    r"^billing|^paymentrequired$|^arrearage$|^servicequotaexceeded$|insufficient(?:quota|balance|credit|funds)"
    r"|creditbalance|spendlimit|usagelimitexceeded|budgetexceeded|exceededcurrentquota"
)


DECISIVE_CODES = codes(
    (
        RATE_LIMIT,
        (
            "rate_limit_exceeded rate_limit_reached rate_limited slow_down TooManyRequests Throttling"
            " Throttled Throttling.RateQuota Throttling.AllocationQuota RequestLimitExceeded"
            " ProvisionedThroughputExceeded"
        ),
    ),
    (
        OVERLOADED,
        (
            "overloaded engine_overloaded server_overloaded server_busy capacity_exceeded NoCapacity"
            " flex_unavailable resource_unavailable ModelNotReady temporary-reduced-capacity"
        ),
    ),
    (
        USED_UP,
        (
            "quota_exceeded daily_limit_exceeded weekly_limit_exceeded monthly_limit_exceeded"
            # limits of a plan, such as ChatGPT's and coding plans: they reset by themselves
            " usage_limit_reached usage_limit usage_not_included"
        ),
    ),
    (TIMEOUT, "request_timeout request_body_timeout ModelTimeout"),
    (
        AUTH,
        (
            "invalid_api_key invalid_key incorrect_api_key invalid_grant ExpiredToken UnrecognizedClient"
            " API_KEY_INVALID API_KEY_EXPIRED API_KEY_REVOKED API_KEY_DISABLED missing_api_key no_api_key"
            # LiteLLM's proxy answers 400 with these, other gateways 403, 404 or 500
            " expired_key key_expired expired_api_key token_expired key_revoked revoked_key key_disabled"
            " auth_error token_not_found_in_db authentication_error invalid_authentication UNAUTHENTICATED"
            " unauthorized invalid_credentials"
        ),
    ),
    (CONTEXT_LENGTH, "context_length_exceeded context_window_exceeded model_context_window_exceeded"),
    (
        CONTENT_POLICY,
        (
            "content_policy_violation image_content_policy_violation misalignment_policy_violation"
            " content_filter content_filtered cyber_policy bio_policy moderation_blocked"
            " ResponsibleAIPolicyViolation DataInspectionFailed"
        ),
    ),
)
"""Codes that are more specific than the status. `code_key` unifies their spellings."""

VAGUE_CODES = codes(
    (RATE_LIMIT, "rate_limit RESOURCE_EXHAUSTED"),
    (OVERLOADED, "UNAVAILABLE service_unavailable"),
    (TIMEOUT, "timeout DEADLINE_EXCEEDED gateway_timeout"),
    (
        SERVER_ERROR,
        "server_error INTERNAL internal_server_error InternalFailure api_error ModelStreamErrorException",
    ),
    (CANCELLED, "CANCELLED canceled"),
    (INVALID, "invalid_request bad_request INVALID_ARGUMENT InvalidParameter validation_error"),
    (
        AUTH,
        ("permission_error PERMISSION_DENIED forbidden AccessDenied"),
    ),
    (NOT_FOUND, "not_found ResourceNotFound model_not_found DeploymentNotFound"),
    (TOO_LARGE, "request_too_large"),
)
"""Codes that only repeat the status. Class names are used only if there is no status."""

CLASS_NAMES = table(
    (
        NETWORK,
        (
            "ConnectError NetworkError ReadError WriteError CloseError RemoteProtocolError ProxyError"
            " ClientPayloadError ChunkedEncodingError IncompleteRead RemoteDisconnected gaierror herror"
            " ServiceRequestError ServiceResponseError TransportError NoResponseError ProtocolError"
            " MaxRetryError EmptyPoolError ClientConnectorError ClientOSError SSLError SSLEOFError"
        ),
    ),
    (
        CUT_OFF_BY_SETTING,
        "SSLCertVerificationError CertificateError ClientConnectorCertificateError",
    ),
    (
        INVALID,
        (
            "UnsupportedProtocol InvalidURL LocalProtocolError MissingSchema InvalidSchema InvalidHeader"
            " LocationParseError TooManyRedirects"
        ),
    ),
    (CANCELLED, "CancelledError"),
    (SERVER_ERROR, "RetryableError"),
    (OVERLOADED, "OverloadedError"),
    (
        AUTH,
        (
            "NoCredentialsError PartialCredentialsError CredentialRetrievalError DefaultCredentialsError"
            " RefreshError AuthenticationError ClientAuthenticationError"
        ),
    ),
    (CONTENT_POLICY, "ContentFilterFinishReasonError ContentPolicyViolationError"),
    (CONTEXT_LENGTH, "LengthFinishReasonError ContextWindowExceededError ContextLengthExceededError"),
)
"""Exception classes of the usual HTTP clients and SDKs, by name: two packages may copy one class."""

_TIMEOUT_NAME = re.compile(r"(?:Timeout|TimedOut|TimeoutExpired)(?:Error|Exception)?$|^DeadlineExceeded$")
_NETWORK_NAME = re.compile(
    r"(?:Connection|ConnectionClosed|ConnectionReset|Disconnected)(?:Error|Exception)$"
)


def of_status(status: int) -> Meaning | None:
    """Return what an HTTP status means by itself; None below 400.

    An unlisted status counts as the first of its class, by RFC 9110 section 15: 4xx as 400, 5xx as 500.
    """
    if status < 400:
        return None
    return _STATUS.get(status, INVALID if status < 500 else SERVER_ERROR)


def is_money(key: str) -> bool:
    """Return whether the code means that the account is out of money or over a spending limit."""
    return _MONEY.search(key) is not None


def of_class_name(name: str) -> Meaning | None:
    """Return what an exception class of this name means, from any package; None if unknown."""
    if _TIMEOUT_NAME.search(name):
        return TIMEOUT
    return CLASS_NAMES.get(name) or (NETWORK if _NETWORK_NAME.search(name) else None)
