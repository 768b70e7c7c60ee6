"""How arguments and results become bytes, and come back as what they were. Strict JSON, never pickle.

`Signature` checks and stores the arguments of one task function; `encode` and `decode` are for single values
(steps, progress); `load_result(Shape(), data)` reads a result whose function is not known. What is stored is
opaque to the stores, which keep `CODEC` beside it.
"""

from tidegate.codec.result import EncodedResult, Unstorable, encode_result, load_result
from tidegate.codec.shape import LIMIT_BYTES, Shape, decode, encode
from tidegate.codec.signature import Signature
from tidegate.codec.tags import CODEC

__all__ = [
    "CODEC",
    "LIMIT_BYTES",
    "EncodedResult",
    "Shape",
    "Signature",
    "Unstorable",
    "decode",
    "encode",
    "encode_result",
    "load_result",
]
