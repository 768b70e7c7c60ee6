"""Encodes arguments and results as bytes and decodes them to equal values. Strict JSON, never pickle.

`Signature` checks and encodes the arguments of one task function. `encode` and `decode` are for single values
(steps, progress). `load_result(Shape(), data)` reads a result whose function is unknown. Stores do not
interpret the bytes; they keep the name of the format (`CODEC`) with them.
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
