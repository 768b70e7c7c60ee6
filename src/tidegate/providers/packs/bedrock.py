"""Amazon Bedrock. Codes come in the body or as `x-amzn-ErrorType`, in a stream in lowerCamelCase.

424 is an error of the model behind Bedrock, and that model's status decides.

Sources: botocore 1.44.8 `data/bedrock-runtime/service-2.json`; docs.aws.amazon.com/bedrock
"troubleshooting-api-error-codes".
"""

from __future__ import annotations

from tidegate.providers.counting import Counting
from tidegate.providers.evidence import Evidence
from tidegate.providers.general import of_status
from tidegate.providers.meaning import NO_MONEY, OVERLOADED, RATE_LIMIT, SERVER_ERROR, TIMEOUT, Finding, codes
from tidegate.providers.pack import Pack


def _judge(evidence: Evidence) -> Finding | None:
    original = (evidence.document or {}).get("originalStatusCode")
    if evidence.status != 424 or not isinstance(original, int):
        return None
    meaning = of_status(original)
    return None if meaning is None else Finding(meaning, f"status {original} of the model, behind a 424")


BEDROCK = Pack(
    name="bedrock",
    counting=Counting(reserves_max_tokens=True),
    aliases=("aws", "amazon-bedrock", "aws-bedrock"),
    hosts=("amazonaws.com", "api.aws"),
    modules=("botocore", "boto3", "aiobotocore"),
    codes=codes(
        (RATE_LIMIT, "ThrottlingException"),
        (OVERLOADED, "ModelNotReadyException ServiceUnavailableException"),
        (TIMEOUT, "ModelTimeoutException"),
        (SERVER_ERROR, "ModelStreamErrorException InternalServerException"),
        (NO_MONEY, "ServiceQuotaExceededException"),
    ),
    judge=_judge,
)
