"""pydantic: the schema of each usual type of a field is served, and random texts of it are valid and can be read.

It needs no server: texts come from the program coppice-samples (COPPICE_SAMPLES: its path), and jsonschema says whether they
are valid.
"""
# /// script
# dependencies = ["pydantic", "jsonschema[format]", "email-validator"]
# ///
import dataclasses
import datetime
import decimal
import enum
import ipaddress
import json
import os
import pathlib
import subprocess
import typing
import uuid

import jsonschema
import pydantic
from pydantic import Field
from typing_extensions import TypedDict

from checks import check, expect, main

SAMPLES = os.environ.get("COPPICE_SAMPLES") or pathlib.Path(__file__).resolve().parents[2] / "build/release/bin/coppice-samples"
COUNT = int(os.environ.get("COPPICE_EXAMPLES", 40))
A, D, Key = typing.Annotated, decimal.Decimal, typing.TypeVar("Key")


class Color(enum.Enum):
    RED, GREEN, BLUE = "red", "green", "blue"


class Level(enum.IntEnum):
    LOW, HIGH = 1, 9


class Point(TypedDict):
    x: int
    y: typing.NotRequired[float]


@dataclasses.dataclass
class Size:
    width: int
    name: str = "none"


class Pair(typing.NamedTuple):
    first: int
    second: str


class Cat(pydantic.BaseModel):
    kind: typing.Literal["cat"]
    lives: A[int, Field(ge=0, le=9)]


class Dog(pydantic.BaseModel):
    kind: typing.Literal["dog"]
    name: str = Field(alias="dogName", description="How it is called.")


class Tree(pydantic.BaseModel):
    value: int
    children: list["Tree"] = []


class Box(pydantic.BaseModel, typing.Generic[Key]):
    content: Key
    color: Color = Color.RED


class Order(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    id: uuid.UUID = Field(default_factory=uuid.uuid4)
    pets: list[A[Cat | Dog, Field(discriminator="kind")]] = Field(max_length=3)
    box: Box[int] = Field(description="One box.")
    note: str | None = Field(default=None, examples=["x"], title="N")


class Names(pydantic.RootModel[list[str]]):
    pass


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    a: int


# Types whose schema says less than the type: its texts are valid, but pydantic may still refuse one.
LOOSE = {"decimal", "decimal_digits", "decimal_bounds", "dict_of_integers", "constrained_integer_keys", "future_date",
         "aware_datetime", "naive_datetime", "import_string", "bytesize", "http_url"}

TYPES = {
    "integer": int, "float": float, "string": str, "boolean": bool, "none": None, "bytes": bytes,
    "decimal": D, "decimal_digits": A[D, Field(max_digits=6, decimal_places=2)], "decimal_bounds": A[D, Field(ge=0, lt=10)],
    "date": datetime.date, "datetime": datetime.datetime, "time": datetime.time, "timedelta": datetime.timedelta,
    "aware_datetime": pydantic.AwareDatetime, "naive_datetime": pydantic.NaiveDatetime, "future_date": pydantic.FutureDate,
    "uuid": uuid.UUID, "uuid1": pydantic.UUID1, "uuid3": pydantic.UUID3, "uuid4": pydantic.UUID4, "uuid5": pydantic.UUID5,
    "enum": Color, "int_enum": Level, "literal": typing.Literal["a", 1, None, True], "optional": int | None,
    "union": int | str | list[bool], "tagged_union": A[Cat | Dog, Field(discriminator="kind")],
    "list": list[int], "set": set[int], "frozenset": frozenset[str], "set_of_enum": set[Color], "set_of_bool": set[bool],
    "tuple": tuple[int, str, bool], "variadic_tuple": tuple[int, ...], "conlist": A[list[str], Field(min_length=1, max_length=3)],
    "conset": A[set[typing.Literal["a", "b", "c"]], Field(min_length=2)],
    "dict": dict[str, int], "dict_of_literals": dict[typing.Literal["a", "b"], int], "dict_of_enum": dict[Color, float],
    "dict_of_dates": dict[datetime.date, int], "dict_of_integers": dict[int, str],
    "constrained_keys": dict[A[str, Field(pattern="^[a-z]+$", max_length=5)], int],
    "patterned_keys": dict[A[str, Field(pattern="^k[0-9]")], bool], "typed_dict": Point, "dataclass": Size, "named_tuple": Pair,
    "nested_model": Order, "recursive_model": Tree, "root_model": Names, "generic_model": Box[list[int]], "open_model": Open,
    "conint": A[int, Field(gt=3, le=100, multiple_of=3)], "confloat": A[float, Field(ge=-0.5, lt=1)],
    "constr": A[str, Field(min_length=2, max_length=8, pattern=r"^[A-Z]\w*$")],
    "positive_int": pydantic.PositiveInt, "non_negative_float": pydantic.NonNegativeFloat, "strict_int": pydantic.StrictInt,
    "email": pydantic.EmailStr, "name_email": pydantic.NameEmail, "any_url": pydantic.AnyUrl, "http_url": pydantic.HttpUrl,
    "ipv4": ipaddress.IPv4Address, "ipv6": ipaddress.IPv6Address, "ipv4_network": ipaddress.IPv4Network,
    "ipv6_network": ipaddress.IPv6Network, "ipv4_interface": ipaddress.IPv4Interface, "ip_any": pydantic.IPvAnyAddress,
    "path": pathlib.Path, "json": pydantic.Json, "typed_json": pydantic.Json[list[int]], "secret": pydantic.SecretStr,
    "base64_bytes": pydantic.Base64Bytes, "base64_url": pydantic.Base64UrlBytes, "pattern": typing.Pattern,
    "bytesize": pydantic.ByteSize, "import_string": pydantic.ImportString, "any": typing.Any,
    "annotated": A[int, Field(description="A count.", examples=[1]), Field(ge=0)],
}


def texts_of(schema):
    run = subprocess.run([SAMPLES, "json_schema", str(COUNT), "1"], input=json.dumps(schema), text=True, capture_output=True)
    expect(run.returncode == 0, run.stderr.strip())
    return [json.loads(line) for line in run.stdout.splitlines()]


def check_type(name, kind):
    adapter = pydantic.TypeAdapter(kind)
    schema = adapter.json_schema()
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    for text in texts_of(schema):
        errors = [error.message for error in validator.iter_errors(json.loads(text))
                  if not (error.validator == "uniqueItems" and name in REPEATS)]
        expect(not errors, f"{text}: {errors}")
        if name not in LOOSE:
            adapter.validate_json(text)


# Sets of values without end: that none comes twice is not kept, and named as ignored.
REPEATS = {"set", "frozenset"}


def add_check(name, kind):
    def one():
        check_type(name, kind)
    one.__name__ = name
    check(one, not_served=NOT_SERVED.get(name))


NOT_SERVED = {"pattern": "a regular expression as a value: its format is an annotation"}


for each, of_type in TYPES.items():
    add_check(each, of_type)
main()
