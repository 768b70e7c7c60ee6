"""What an HTTP status, a machine-readable code or a class name means, as tables.

Generic entries only: what one provider alone means by a code belongs to `providers/`.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import NamedTuple

from tidegate.domain.failure import Reason, Verdict


class Meaning(NamedTuple):
    """What one piece of evidence says."""

    verdict: Verdict
    reason: Reason


def _transient(reason: Reason) -> Meaning:
    return Meaning(Verdict.TRANSIENT, reason)


def _permanent(reason: Reason) -> Meaning:
    return Meaning(Verdict.PERMANENT, reason)


NOTHING_KNOWN = Meaning(Verdict.UNKNOWN, Reason.UNKNOWN)
NO_MONEY = _permanent(Reason.QUOTA)
NETWORK = _transient(Reason.NETWORK)
_CERTIFICATE_REFUSED = _permanent(Reason.NETWORK)
_RATE_LIMIT = _transient(Reason.RATE_LIMIT)
_OVERLOADED = _transient(Reason.OVERLOADED)
_TIMEOUT = _transient(Reason.TIMEOUT)
_SERVER_ERROR = _transient(Reason.SERVER_ERROR)
_CANCELLED = _transient(Reason.CANCELLED)
_INVALID = _permanent(Reason.INVALID_REQUEST)
_AUTH = _permanent(Reason.AUTH)
_NOT_FOUND = _permanent(Reason.NOT_FOUND)
_TOO_LARGE = _permanent(Reason.TOO_LARGE)
_CONTENT_POLICY = _permanent(Reason.CONTENT_POLICY)
_CONTEXT_LENGTH = _permanent(Reason.CONTEXT_LENGTH)

CLIENT_FAULTS = frozenset({_CERTIFICATE_REFUSED, _INVALID})
"""Faults of the caller's own set-up, which clients wrap into a mere connection error."""
TOO_LARGE_FOR_NOW = _OVERLOADED
"""413 with Retry-After: the server says itself that it is temporary (RFC 9110 section 15.5.14)."""

_STATUS = {
    401: _AUTH,
    402: NO_MONEY,
    403: _AUTH,
    404: _NOT_FOUND,
    408: _TIMEOUT,
    # SDKs take it for a lock that could not be had in time, and repeat the call.
    409: _SERVER_ERROR,
    410: _NOT_FOUND,
    413: _TOO_LARGE,
    423: _SERVER_ERROR,
    424: _SERVER_ERROR,
    425: _SERVER_ERROR,
    429: _RATE_LIMIT,
    431: _TOO_LARGE,
    # Two providers mean opposite things by it.
    498: NOTHING_KNOWN,
    499: _CANCELLED,
    501: _INVALID,
    503: _OVERLOADED,
    504: _TIMEOUT,
    505: _INVALID,
    507: NOTHING_KNOWN,
    511: NETWORK,
    # Cloudflare's own, about the way to the origin.
    521: NETWORK,
    522: _TIMEOUT,
    523: NETWORK,
    524: _TIMEOUT,
    525: NETWORK,
    526: NETWORK,
    527: NETWORK,
    529: _OVERLOADED,
}

_MONEY = re.compile(
    r"^billing|^paymentrequired$|^arrearage$|^servicequotaexceeded$|insufficient(?:quota|balance|credit|funds)"
    r"|creditbalance|spendlimit|usagelimitexceeded|budgetexceeded|exceededcurrentquota"
)


def _table(*rows: tuple[Meaning, str]) -> MappingProxyType[str, Meaning]:
    return MappingProxyType({word: meaning for meaning, words in rows for word in words.split()})


DECISIVE_CODES = _table(
    (
        _RATE_LIMIT,
        (
            "ratelimitexceeded ratelimitreached ratelimited throttling throttled throttlingratequota"
            " throttlingallocationquota toomanyrequests requestlimitexceeded provisionedthroughputexceeded"
            " slowdown"
        ),
    ),
    (
        _OVERLOADED,
        (
            "overloaded engineoverloaded capacityexceeded nocapacity modelnotready"
            " serverbusy temporaryreducedcapacity resourceunavailable"
        ),
    ),
    (_transient(Reason.QUOTA), "quotaexceeded dailylimitexceeded"),
    (_TIMEOUT, "requestbodytimeout modeltimeout requesttimeout"),
    (_AUTH, "invalidapikey apikeyinvalid invalidgrant expiredtoken unrecognizedclient"),
    (_CONTEXT_LENGTH, "contextlengthexceeded contextwindowexceeded modelcontextwindowexceeded"),
    (
        _CONTENT_POLICY,
        (
            "contentpolicyviolation contentfilter contentfiltered responsibleaipolicyviolation cyberpolicy"
            " biopolicy datainspectionfailed moderationblocked"
        ),
    ),
)
"""Say more than the status beside them."""

VAGUE_CODES = _table(
    (_RATE_LIMIT, "ratelimit resourceexhausted"),
    (_OVERLOADED, "unavailable serviceunavailable"),
    (_TIMEOUT, "timeout deadlineexceeded gatewaytimeout"),
    (_SERVER_ERROR, "server internal internalserver internalfailure api modelstreamerror"),
    (_CANCELLED, "cancelled canceled"),
    (_INVALID, "invalidrequest badrequest invalidargument invalidparameter validation"),
    (_AUTH, "authentication unauthorized unauthenticated permission permissiondenied forbidden accessdenied"),
    (_NOT_FOUND, "notfound resourcenotfound modelnotfound deploymentnotfound"),
    (_TOO_LARGE, "requesttoolarge"),
)
"""Kinds of errors: they repeat what the status says, and count only where there is none."""

CLASS_NAMES = _table(
    (
        NETWORK,
        (
            "ConnectError NetworkError ReadError WriteError CloseError RemoteProtocolError ProxyError"
            " ClientPayloadError ChunkedEncodingError IncompleteRead RemoteDisconnected gaierror herror"
            " ServiceRequestError ServiceResponseError TransportError NoResponseError ProtocolError"
            " MaxRetryError ClientConnectorError ClientOSError SSLError SSLEOFError"
        ),
    ),
    (
        _CERTIFICATE_REFUSED,
        "SSLCertVerificationError CertificateError ClientConnectorCertificateError",
    ),
    (
        _INVALID,
        (
            "UnsupportedProtocol InvalidURL LocalProtocolError MissingSchema InvalidSchema InvalidHeader"
            " LocationParseError TooManyRedirects"
        ),
    ),
    (_CANCELLED, "CancelledError"),
    (_SERVER_ERROR, "RetryableError"),
    (_OVERLOADED, "OverloadedError"),
    (
        _AUTH,
        (
            "NoCredentialsError PartialCredentialsError CredentialRetrievalError DefaultCredentialsError"
            " RefreshError AuthenticationError ClientAuthenticationError"
        ),
    ),
    (_CONTENT_POLICY, "ContentFilterFinishReasonError ContentPolicyViolationError"),
    (_CONTEXT_LENGTH, "LengthFinishReasonError ContextWindowExceededError ContextLengthExceededError"),
)
"""Classes of the usual HTTP clients and SDKs, by name alone: two packages may hold twins of one class."""

_TIMEOUT_NAME = re.compile(r"(?:Timeout|TimedOut|TimeoutExpired)(?:Error|Exception)?$|^DeadlineExceeded$")
_NETWORK_NAME = re.compile(
    r"(?:Connection|ConnectionClosed|ConnectionReset|Disconnected)(?:Error|Exception)$"
)


def of_status(status: int) -> Meaning | None:
    """Return what an HTTP status says by itself; None below 400.

    An unlisted one counts as its class's first, as RFC 9110 section 15 has it: 4xx as 400, 5xx as 500.
    """
    if status < 400:
        return None
    return _STATUS.get(status, _INVALID if status < 500 else _SERVER_ERROR)


def code_key(code: str) -> str:
    """Return the form under which a code is looked up, the same for all ways of writing it.

    `rate_limit_error`, `RateLimitError` and `rate-limit` are one; a name space before `#` and an AWS
    suffix after `:` do not count.
    """
    bare = code.rpartition("#")[2].partition(":")[0]
    key = "".join(letter for letter in bare.lower() if letter.isascii() and letter.isalnum())
    for ending in ("exception", "error"):
        if key.endswith(ending) and key != ending:
            return key.removesuffix(ending)
    return key


def is_money(key: str) -> bool:
    """Return whether the code says that an account is out of money or over a limit on spending."""
    return _MONEY.search(key) is not None


def of_class_name(name: str) -> Meaning | None:
    """Return what an exception class of this name says, wherever it comes from."""
    if _TIMEOUT_NAME.search(name):
        return _TIMEOUT
    return CLASS_NAMES.get(name) or (NETWORK if _NETWORK_NAME.search(name) else None)
