"""Anthropic. `error.details.error_code` is more specific than `error.type`, which repeats the status.

Sources: platform.claude.com "Errors" and "Rate limits"; anthropic 2.14.0 `_error_classes.py`, its classes
by (status, error_code). A spend limit that the account set itself is a 400, and only its text shows that.
"""

from __future__ import annotations

from tidegate.providers.counting import Counting
from tidegate.providers.meaning import (
    AUTH,
    AUTH_FOR_NOW,
    INVALID,
    MAYBE_DONE,
    NO_MONEY,
    OVERLOADED,
    RATE_LIMIT,
    SERVER_ERROR,
    TIMEOUT,
    TOO_LARGE,
    codes,
    table,
)
from tidegate.providers.pack import Pack

ANTHROPIC = Pack(
    name="anthropic",
    counting=Counting(reserves_max_tokens=True, counts_cached=False),
    aliases=("claude",),
    hosts=("api.anthropic.com", "claude.com"),
    modules=("anthropic",),
    codes=codes(
        (RATE_LIMIT, "ramp_limit_exceeded"),
        (OVERLOADED, "compaction_unavailable"),
        (TIMEOUT, "request_body_timeout external_key_validation_timed_out"),
        (
            NO_MONEY,
            (
                "enforced_spend_limit_reached contract_spend_limit_reached"
                " linked_organization_spend_limit_reached linked_organization_billing_unavailable"
                " user_profile_not_billable user_profile_billing_not_authorized"
            ),
        ),
        (AUTH, "organization_on_hold api_key_scope_missing claude_code_key_creator_not_member"),
        # 409 and 503 that resolve by themselves,
        (
            SERVER_ERROR,
            (
                "scan_pending concurrent_membership_change storage_changed_concurrently"
                " workspace_changed_concurrently thread_continue_in_flight registration_pending"
                " authorization_check_unavailable cmek_key_unreachable cmek_context_unavailable"
            ),
        ),
        # and 409 that do not.
        (
            INVALID,
            (
                "external_key_changed gcp_project_controlled_by_another_organization plugin_name_taken"
                " skill_name_taken skill_read_blocked_undecryptable slack_channel_set_up_settings_conflict"
                " storage_already_registered storage_attached_during_archive storage_in_use"
            ),
        ),
        (MAYBE_DONE, "change_outcome_unknown workspace_created_incomplete"),
        (TOO_LARGE, "request_body_too_large_after_decoding"),
    ),
    classes=table(
        # A projected token may still appear.
        (AUTH_FOR_NOW, "IdentityTokenFileError"),
        (AUTH, "CredentialsError"),
    ),
    requests_window_seconds=60.0,
)
