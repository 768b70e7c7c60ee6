"""DashScope (Alibaba Model Studio, Qwen). `insufficient_quota` is tokens per minute here, not money.

Its own SDK raises nothing: a task gets a response object with `status_code` and `code`, and must check it.

Sources: help.aliyun.com/en/model-studio "error-code"; dashscope 2.0.2.
"""

from __future__ import annotations

from tidegate.providers.meaning import CONTENT_POLICY, NO_MONEY, NOT_FOUND, RATE_LIMIT, TIMEOUT, codes
from tidegate.providers.pack import Pack

DASHSCOPE = Pack(
    name="dashscope",
    aliases=("qwen", "alibaba", "aliyun", "bailian"),
    hosts=("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com", "dashscope-us.aliyuncs.com"),
    modules=("dashscope",),
    codes=codes(
        (RATE_LIMIT, "Throttling Throttling.RateQuota Throttling.AllocationQuota insufficient_quota"),
        (NO_MONEY, "Arrearage"),
        (CONTENT_POLICY, "DataInspectionFailed data_inspection_failed"),
        (NOT_FOUND, "ModelNotFound"),
        (TIMEOUT, "InternalError.Timeout RequestTimeOut"),
    ),
)
