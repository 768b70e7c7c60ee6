"""Pydantic models as arguments and results, by annotation."""

from datetime import datetime
from enum import Enum
from typing import Any, Generic, TypeVar

import pytest

from tidegate.codec import Signature, decode, encode
from tidegate.codec.compare import difference
from tidegate.errors import ArgumentsError

pydantic = pytest.importorskip("pydantic")

T = TypeVar("T")


class Size(Enum):
    BIG = "big"


class Part(pydantic.BaseModel):
    when: datetime
    size: Size = Size.BIG
    raw: bytes = b""
    note: Any = None


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    when: datetime
    size: Size


class Aliased(pydantic.BaseModel):
    full_name: str = pydantic.Field(alias="fullName")
    parts: list[Part] = []


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")


class Secretive(pydantic.BaseModel):
    key: pydantic.SecretStr


class Private(pydantic.BaseModel):
    x: int
    _seen: int = pydantic.PrivateAttr(default=0)


class Box(pydantic.BaseModel, Generic[T]):
    item: T


class Numbers(pydantic.RootModel[list[int]]):
    pass


class Score(pydantic.BaseModel):
    value: float | None


class Refusing(pydantic.BaseModel):
    x: int

    @pydantic.field_serializer("x")
    def _refuse(self, x: int) -> int:
        raise RuntimeError("no")


class Base(pydantic.BaseModel):
    x: int


class Derived(Base):
    y: int


PART = Part(when=datetime(2026, 1, 2, 3))


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (PART, Part),
        (Part(when=datetime(2026, 1, 2), raw=b"\xff\x00"), Part),
        (Part(when=datetime(2026, 1, 2), note=(1, {2: datetime(2026, 1, 2)})), Part),
        (Strict(when=datetime(2026, 1, 2), size=Size.BIG), Strict),
        (Aliased(fullName="x", parts=[PART]), Aliased),
        ([PART], list[Part]),
        ({"a": PART}, dict[str, Part]),
        (None, Part | None),
        (PART, Part | None),
        (Open(x=1, y=["z"]), Open),
        (Box[int](item=3), Box[int]),
        (Numbers([1, 2]), Numbers),
        (Score(value=1.5), Score),
        (Private(x=1), Private),
    ],
)
def test_a_model_is_decoded_by_its_annotation(value, hint):
    data = encode(value, path="doc", hint=hint)
    assert difference(value, decode(data, hint=hint)) is None


def _changed() -> Private:
    value = Private(x=1)
    value._seen = 5
    return value


@pytest.mark.parametrize(
    ("value", "hint", "path"),
    [
        (PART, Any, "doc"),
        (Secretive(key="sk-1"), Secretive, "doc.key"),
        (_changed(), Private, "doc"),
        (Score(value=float("nan")), Score, "doc.value"),
        (Refusing(x=1), Refusing, "doc"),
        (Derived(x=1, y=2), Base, "doc"),
        (Box[Base](item=Derived(x=1, y=2)), Box[Base], "doc.item"),
        ({"when": "2026-01-02T00:00:00"}, Part, "doc"),
    ],
)
def test_a_model_that_would_not_decode_to_an_equal_one_is_refused(value, hint, path):
    with pytest.raises(ArgumentsError) as refused:
        encode(value, path="doc", hint=hint)
    assert refused.value.facts["path"] == path
    assert "sk-1" not in str(refused.value)


def _save(part: Part, parts: list[Part] = []) -> Part:
    return part


def test_fields_that_do_not_fit_are_named_without_their_values():
    signature = Signature.of(_save)
    with pytest.raises(ArgumentsError) as refused:
        signature.load(b'{"k":{"part":{"when":"sk-secret"}}}')
    assert "part: Part:" in refused.value.message
    assert "(when)" in refused.value.message
    assert "sk-secret" not in str(refused.value)


def test_a_model_goes_through_a_whole_call_and_its_result():
    signature = Signature.of(_save)
    assert signature.load(signature.bind((PART,), {"parts": [PART]})) == ((), {"part": PART, "parts": [PART]})
    assert signature.load_result(signature.encode_result(PART).data) == PART
