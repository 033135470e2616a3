"""A small protobuf codec, driven by tables.

A message is a dataclass whose fields are declared by the functions at the end of this file; each
keeps the field's number and type as the field's metadata, which is all that encoding and decoding
look at:

    @dataclass
    class Alloc(Message):
        handle: int = uint64(1)
        device: str = string(3)

The encoding is https://protobuf.dev/programming-guides/encoding. Decoding takes bytes that nobody
vouches for: it ends in a value or in DecodeError, in time and memory linear in their length. Fields
that are not declared, or come with another wire type, are passed over; groups are refused.
"""

from __future__ import annotations

import dataclasses
import enum
import operator
import struct
from typing import Any, Callable, ClassVar, NamedTuple, TypeVar

Bytes = bytes | bytearray | memoryview
M = TypeVar("M", bound="Message")

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5  # wire types
_MASK = (1 << 64) - 1


class DecodeError(ValueError):
    """Bytes that are not the message that they should be."""


class Type(NamedTuple):
    """A field type: how its values become bytes and back."""

    name: str  # as in .proto files
    wire: int
    default: Any
    encode: Callable[[Any], Any]  # to bytes, without length
    decode: Callable[[Any], Any]  # of the varint, or of a memoryview of the value


def encode_varint(value: int) -> bytes:
    if value < 0x80:
        return _SMALL[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL = [bytes([i]) for i in range(0x80)]


def decode_varint(view: memoryview, at: int, end: int) -> tuple[int, int]:
    """The number at `at` and where it ends."""
    if at < end and view[at] < 0x80:
        return view[at], at + 1
    value = shift = 0
    while at < end:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _MASK:
                break
            return value, at
        shift += 7
        if shift == 70:
            break
    else:
        raise DecodeError("a number is cut off")
    raise DecodeError("a number has more than 64 bits")


def _checked(low: int, high: int) -> Callable[[Any], bytes]:
    def encode(value: Any) -> bytes:
        number = operator.index(value)
        if not low <= number <= high:
            raise ValueError(f"{number} is not from {low} to {high}")
        return encode_varint(number & _MASK)

    return encode


def _zigzag(value: Any) -> bytes:
    number = operator.index(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{number} is not a signed 64-bit number")
    return encode_varint((number << 1 ^ number >> 63) & _MASK)


def _signed(bits: int) -> Callable[[int], int]:
    half, whole = 1 << bits - 1, 1 << bits
    return lambda n: (n + half) % whole - half


def _fixed(form: str) -> tuple[Callable[[Any], bytes], Callable[[Any], Any]]:
    packer = struct.Struct(form)

    def encode(value: Any) -> bytes:
        try:
            return packer.pack(value)
        except struct.error as error:
            raise ValueError(f"{value!r}: {error}") from None

    return encode, lambda view: packer.unpack(view)[0]


def _to_text(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{text!r} is not a text that has a UTF-8 form") from None


def _text(view: memoryview) -> str:
    try:
        return str(view, "utf-8")
    except UnicodeDecodeError:
        raise DecodeError("a string is not UTF-8") from None


_TYPES = {
    t.name: t
    for t in (
        Type("uint32", VARINT, 0, _checked(0, (1 << 32) - 1), lambda n: n & 0xFFFFFFFF),
        Type("uint64", VARINT, 0, _checked(0, _MASK), int),
        Type("int64", VARINT, 0, _checked(-(1 << 63), (1 << 63) - 1), _signed(64)),
        Type("sint64", VARINT, 0, _zigzag, lambda n: n >> 1 ^ -(n & 1)),
        Type("bool", VARINT, False, _checked(0, 1), bool),
        Type("enum", VARINT, 0, _checked(-(1 << 31), (1 << 31) - 1), _signed(32)),
        Type("fixed32", FIXED32, 0, *_fixed("<I")),
        Type("fixed64", FIXED64, 0, *_fixed("<Q")),
        Type("double", FIXED64, 0.0, *_fixed("<d")),
        Type("string", LENGTH, "", _to_text, _text),
        Type("bytes", LENGTH, b"", lambda data: data, bytes),
        # The same on the wire, left where it lies in the message: large data is not copied.
        Type("payload", LENGTH, b"", lambda data: data, memoryview),
    )
}


_MESSAGE = Type("message", LENGTH, None, bytes, bytes)  # whose values are encoded by their tables


class FieldInfo(NamedTuple):
    """What the table says of one field."""

    name: str
    number: int
    kind: Type
    repeated: bool
    oneof: str
    message: type[Message] | None  # of fields that are messages
    values: type[enum.IntEnum] | None  # of enums
    attribute: str  # the name, with "_" after a word of Python's

    @property
    def tag(self) -> int:
        return self.number << 3 | self.kind.wire


class Plan(NamedTuple):
    fields: tuple[FieldInfo, ...]  # in the order of their numbers
    by_tag: dict[int, FieldInfo]
    numbers: dict[int, FieldInfo]  # of `by_tag`, those whose tag is a byte and whose value is one number, in no oneof
    pieces: dict[int, FieldInfo]  # and those whose tag is a byte and whose value has a length
    oneofs: dict[str, tuple[str, ...]]  # attributes of the same oneof
    others: dict[str, tuple[str, ...]]  # by attribute: the other attributes of its oneof


class Message:
    """Base of all messages, which are dataclasses."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def encode(self) -> bytes:
        """Large data is copied once, into the result."""
        parts: list[Bytes] = []
        _append(self, parts)
        return b"".join(parts)

    @classmethod
    def tag(cls, name: str) -> int:
        """What precedes a field."""
        return next(f.tag for f in plan(cls).fields if f.name == name)

    @classmethod
    def decode(cls: type[M], data: Bytes) -> M:
        """DecodeError if `data` is not such a message."""
        message = cls()
        view = memoryview(data).cast("B")
        _merge(message, view, 0, len(view))
        return message


_PLANS: dict[type[Message], Plan] = {}


def plan(cls: type[Message]) -> Plan:
    """The table of a message, made when it is first asked for."""
    if cls not in _PLANS:
        _PLANS[cls] = _make_plan(cls)
    return _PLANS[cls]


def _make_plan(cls: type[Message]) -> Plan:
    fields: list[FieldInfo] = [f.metadata["field"](f.name) for f in dataclasses.fields(cls)]
    fields.sort(key=lambda f: f.number)
    by_tag = {f.tag: f for f in fields}
    for f in fields:  # numbers come one by one or packed
        if f.repeated and f.kind.wire != LENGTH:
            by_tag.setdefault(f.number << 3 | LENGTH, f)
    oneofs: dict[str, tuple[str, ...]] = {}
    for f in fields:
        if f.oneof:
            oneofs[f.oneof] = oneofs.get(f.oneof, ()) + (f.attribute,)
    others = {f.attribute: tuple(a for a in oneofs.get(f.oneof, ()) if a != f.attribute) for f in fields}
    numbers = {f.tag: f for f in fields if f.tag < 0x80 and f.kind.wire == VARINT and not f.repeated and not f.oneof}
    pieces = {f.tag: f for f in fields if f.tag < 0x80 and f.kind.wire == LENGTH}
    return Plan(tuple(fields), by_tag, numbers, pieces, oneofs, others)


def _append(message: Message, parts: list[Bytes]) -> None:
    for f in plan(type(message)).fields:
        value = getattr(message, f.attribute)
        if value is None or value is False or value.__class__ is list and not value:  # most fields of most messages
            continue
        try:
            _append_field(f, value, parts)
        except (TypeError, AttributeError, ValueError) as error:
            raise type(error)(f"{type(message).__name__}.{f.name}: {error}") from None


def _append_field(f: FieldInfo, value: Any, parts: list[Bytes]) -> None:
    if f.message is not None:
        for one in value if f.repeated else () if value is None else (value,):
            inner: list[Bytes] = []
            _append(one, inner)
            _append_length(f.tag, sum(map(len, inner)), parts)
            parts += inner
    elif f.repeated and f.kind.wire != LENGTH:
        if len(value) > 0:
            packed = b"".join(map(f.kind.encode, value))
            _append_length(f.number << 3 | LENGTH, len(packed), parts)
            parts.append(packed)
    elif f.repeated:
        for one in value:
            _append_value(f, one, parts)
    elif _is_set(f, value):
        _append_value(f, value, parts)


def _is_set(f: FieldInfo, value: Any) -> bool:
    if f.kind.wire == LENGTH:
        return len(value) > 0
    return bool(value) or f.kind.encode(value).strip(b"\0") != b""  # -0.0 is not 0.0


def _append_length(tag: int, length: int, parts: list[Bytes]) -> None:
    parts.append(encode_varint(tag) + encode_varint(length))


def _append_value(f: FieldInfo, value: Any, parts: list[Bytes]) -> None:
    encoded = f.kind.encode(value)
    if f.kind.wire != LENGTH:
        parts.append(encode_varint(f.tag) + encoded)
        return
    flat = encoded if isinstance(encoded, bytes) else memoryview(encoded).cast("B")
    _append_length(f.tag, len(flat), parts)
    parts.append(flat)


def _skip(view: memoryview, at: int, end: int, wire: int) -> int:
    if wire == VARINT:
        return decode_varint(view, at, end)[1]
    if wire == LENGTH:
        length, at = decode_varint(view, at, end)
    elif wire == FIXED64:
        length = 8
    elif wire == FIXED32:
        length = 4
    else:
        raise DecodeError(f"wire type {wire} is not in use")
    if length > end - at:
        raise DecodeError("a field is cut off")
    return at + length


def _merge(message: Message, view: memoryview, at: int, end: int) -> None:
    table = plan(type(message))
    by_tag, numbers, pieces = table.by_tag, table.numbers, table.pieces
    while at < end:
        tag = view[at]
        if tag in numbers:  # and in no oneof, as most fields are
            f = numbers[tag]
            number, at = decode_varint(view, at + 1, end)
            setattr(message, f.attribute, f.kind.decode(number))
            continue
        if tag in pieces and at + 1 < end and view[at + 1] < 0x80:  # so are their lengths
            f, start = pieces[tag], at + 2
            at = start + view[at + 1]
            if at > end:
                raise DecodeError("a field is cut off")
            try:
                _take(message, table, f, view, start, at, packed=False)
            except DecodeError as error:
                raise DecodeError(f"{type(message).__name__}.{f.name}: {error}") from None
            continue
        tag, at = decode_varint(view, at, end)
        if not 0 < tag >> 3 < 1 << 29:
            raise DecodeError(f"{type(message).__name__}: {tag >> 3} is not a field number")
        start = at
        at = _skip(view, at, end, tag & 7)
        if tag not in by_tag:
            continue
        f = by_tag[tag]
        if tag & 7 == LENGTH:
            start = decode_varint(view, start, at)[1]
        try:
            _take(message, table, f, view, start, at, packed=tag != f.tag)
        except DecodeError as error:
            raise DecodeError(f"{type(message).__name__}.{f.name}: {error}") from None


def _take(message: Message, table: Plan, f: FieldInfo, view: memoryview, start: int, end: int,
          packed: bool) -> None:
    """Adds the value view[start:end] of `f` to `message`."""
    if f.oneof:  # the last one counts
        for other in table.others[f.attribute]:
            setattr(message, other, None)
    if f.message is not None:
        known = None if f.repeated else getattr(message, f.attribute)
        value = f.message() if known is None else known
        _merge(value, view, start, end)
        if f.repeated:
            getattr(message, f.attribute).append(value)
        else:
            setattr(message, f.attribute, value)
        return
    values = _packed(f.kind, view, start, end) if packed else (_value(f.kind, view, start, end),)
    if f.repeated:
        getattr(message, f.attribute).extend(values)
    else:
        setattr(message, f.attribute, values[0])


def _value(kind: Type, view: memoryview, start: int, end: int) -> Any:
    return kind.decode(decode_varint(view, start, end)[0] if kind.wire == VARINT
                       else view[start:end])


def _packed(kind: Type, view: memoryview, start: int, end: int) -> list[Any]:
    values = []
    while start < end:
        after = _skip(view, start, end, kind.wire)
        values.append(_value(kind, view, start, after))
        start = after
    return values


# Declarations. They return what dataclasses.field does, and so are typed as what they stand for.


def _declare(number: int, kind: Type, *, repeated: bool = False, oneof: str = "",
             message: type[Message] | None = None,
             values: type[enum.IntEnum] | None = None) -> Any:
    def info(attribute: str) -> FieldInfo:
        return FieldInfo(attribute.rstrip("_"), number, kind, repeated, oneof, message, values,
                         attribute)

    if repeated:
        return dataclasses.field(default_factory=list, metadata={"field": info})
    return dataclasses.field(default=kind.default, metadata={"field": info})


def uint32(number: int) -> Any:
    return _declare(number, _TYPES["uint32"])


def uint64(number: int) -> Any:
    return _declare(number, _TYPES["uint64"])


def int64(number: int) -> Any:
    return _declare(number, _TYPES["int64"])


def sint64(number: int) -> Any:
    return _declare(number, _TYPES["sint64"])


def fixed32(number: int) -> Any:
    return _declare(number, _TYPES["fixed32"])


def fixed64(number: int) -> Any:
    return _declare(number, _TYPES["fixed64"])


def double(number: int) -> Any:
    return _declare(number, _TYPES["double"])


def boolean(number: int) -> Any:
    return _declare(number, _TYPES["bool"])


def string(number: int) -> Any:
    return _declare(number, _TYPES["string"])


def data(number: int) -> Any:
    return _declare(number, _TYPES["bytes"])


def payload(number: int) -> Any:
    """Bytes that are decoded to a view of the message they came in."""
    return _declare(number, _TYPES["payload"])


def enumeration(number: int, values: type[enum.IntEnum]) -> Any:
    """An int: values that are not known are kept."""
    return _declare(number, _TYPES["enum"], values=values)


def repeated(number: int, kind: str | type[Message],
             values: type[enum.IntEnum] | None = None) -> Any:
    """Of scalars by the name of their type, or of messages."""
    if isinstance(kind, str):
        return _declare(number, _TYPES[kind], repeated=True, values=values)
    return _declare(number, _MESSAGE, repeated=True, message=kind)


def submessage(number: int, kind: type[Message], oneof: str = "") -> Any:
    return _declare(number, _MESSAGE, oneof=oneof, message=kind)
