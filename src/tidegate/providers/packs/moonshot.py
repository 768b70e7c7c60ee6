"""Moonshot (Kimi). One 429 means an empty account; only the text shows that a prompt is too long.

Sources: kimi.com "Kimi API"; MoonshotAI/kimi-cli#2011.
"""

from __future__ import annotations

from tidegate.providers.meaning import NO_MONEY, OVERLOADED, RATE_LIMIT, codes
from tidegate.providers.pack import Pack

MOONSHOT = Pack(
    name="moonshot",
    aliases=("kimi", "moonshotai"),
    hosts=("api.moonshot.cn", "api.moonshot.ai", "api.kimi.com"),
    codes=codes(
        (NO_MONEY, "exceeded_current_quota_error"),
        (RATE_LIMIT, "rate_limit_reached_error"),
        (OVERLOADED, "engine_overloaded_error"),
    ),
)
