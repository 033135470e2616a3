"""The codec and its tables: against the .proto files, against protoc, and against random bytes."""

import dataclasses
import enum
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

from support import PACKAGE, main, path, seeded

from telegrad import _messages as messages
from telegrad import _wire as wire

FILES = ["session", "data", "compute", "graph"]


class Proto:
    """The messages, enums and methods of our .proto files, as their text says.

    messages: name -> {field name: (number, type, repeated, oneof)}; enums: name -> {value: number};
    a name within a message is after its name and a dot.
    """

    def __init__(self):
        self.messages, self.enums, self.methods = {}, {}, {}
        for file in FILES:
            with open(path("proto", "telegrad", "v1", file + ".proto"), encoding="utf-8") as source:
                text = re.sub(r"//[^\n]*", "", source.read())
            self.tokens = re.findall(r'"[^"]*"|[\w.]+|[{}()<>,;=]', text)
            while self.tokens:
                self._top()

    def _next(self, *expected):
        token = self.tokens.pop(0)
        assert not expected or token in expected, f"{token}, expected {expected}"
        return token

    def _until(self, end):
        out = []
        while (token := self._next()) != end:
            out.append(token)
        return out

    def _top(self):
        word = self._next("syntax", "package", "import", "option", "message", "enum", "service")
        if word == "message":
            self._message(self._next())
        elif word == "enum":
            self._enum(self._next())
        elif word == "service":
            self._service(self._next())
        else:
            self._until(";")

    def _service(self, service):
        self._next("{")
        while self._next("rpc", "}") == "rpc":
            name = self._next()
            self._next("(")
            takes = self._until(")")[-1]
            self._next("returns")
            self._next("(")
            self.methods[f"/telegrad.v1.{service}/{name}"] = (takes, self._until(")")[-1])
            self._next(";")

    def _enum(self, name):
        self._next("{")
        values = self.enums.setdefault(name, {})
        while (value := self._next()) != "}":
            self._next("=")
            values[value] = int(self._next())
            self._next(";")

    def _message(self, name, oneof=""):
        fields = self.messages.setdefault(name, {})
        self._next("{")
        while (word := self._next()) != "}":
            if word == "message":
                self._message(f"{name}.{self._next()}")
            elif word == "enum":
                self._enum(f"{name}.{self._next()}")
            elif word == "oneof":
                self._message(name, oneof=self._next())
            else:
                self._field(name, fields, word, oneof)

    def _field(self, name, fields, word, oneof):
        repeated = word == "repeated"
        kind = self._next() if repeated else word
        if kind == "map":  # on the wire: repeated messages of key and value
            self._next("<")
            key, _, value = self._until(">")
            repeated = True
            kind = f"{name}.entry({key},{value})"
            self.messages[kind] = {"key": (1, key, False, ""), "value": (2, value, False, "")}
        field = self._next()
        self._next("=")
        fields[field] = (int(self._next()), kind, repeated, oneof)
        self._next(";")


class TablesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.proto = Proto()

    def compare(self, ours, theirs):
        """Our message class with the message of that name, and those that it is made of."""
        if theirs in self.compared:
            self.assertIs(self.compared[theirs], ours)
            return
        self.compared[theirs] = ours
        if "entry(" not in theirs:
            self.assertEqual(ours.__name__, theirs.split(".")[-1])
        fields = {f.name: f for f in wire.plan(ours).fields}
        self.assertEqual(set(fields), set(self.proto.messages[theirs]), theirs)
        for name, (number, kind, repeated, oneof) in self.proto.messages[theirs].items():
            with self.subTest(message=theirs, field=name):
                field = fields[name]
                self.assertEqual((field.number, field.repeated, field.oneof),
                                 (number, repeated, oneof))
                self.compare_type(field, kind, theirs)

    def compare_type(self, field, kind, message):
        inner = [n for n in (f"{message}.{kind}", kind) if n in self.proto.messages]
        enums = [n for n in (f"{message}.{kind}", kind) if n in self.proto.enums]
        if inner:
            self.compare(field.message, inner[0])
        elif enums:
            self.assertEqual(field.kind.name, "enum")
            self.assertEqual({v.name: v.value for v in field.values}, self.proto.enums[enums[0]])
        else:
            self.assertEqual(field.kind.name.replace("payload", "bytes"), kind)

    def test_every_message_that_is_used_is_the_one_of_the_proto_files(self):
        self.compared = {}
        for method, (takes, gives) in messages.METHODS.items():
            self.assertIn(method, self.proto.methods)
            self.assertEqual((takes.__name__, gives.__name__), self.proto.methods[method])
            self.compare(takes, takes.__name__)
            self.compare(gives, gives.__name__)
        self.compare(messages.Graph, "Graph")
        ours = {c for c in vars(messages).values()
                if isinstance(c, type) and issubclass(c, wire.Message) and c is not wire.Message}
        self.assertEqual(ours, set(self.compared.values()), "a message that no method uses")
        self.assertGreater(len(ours), 30)
        enums = {c for c in vars(messages).values()
                 if isinstance(c, type) and issubclass(c, enum.IntEnum)}
        used = {f.values for c in ours for f in wire.plan(c).fields if f.values}
        self.assertEqual(enums, used)

    def test_the_parser_sees_what_is_there(self):
        self.assertEqual(self.proto.messages["Run"]["handles"], (2, "uint64", True, ""))
        self.assertEqual(self.proto.messages["ExecuteRequest"]["sync"], (10, "Sync", False, "op"))
        self.assertEqual(self.proto.enums["TraceEvent.Kind"], {"LAUNCH": 0, "COPY": 1})
        self.assertEqual(self.proto.methods["/telegrad.v1.Compute/Execute"],
                         ("ExecuteRequest", "ExecuteResponse"))


EDGES = {
    "uint32": [0, 1, 127, 128, (1 << 32) - 1],
    "uint64": [0, 1, 300, 1 << 35, (1 << 64) - 1],
    "int64": [0, 1, -1, (1 << 63) - 1, -(1 << 63)],
    "sint64": [0, 1, -1, 2, (1 << 63) - 1, -(1 << 63)],
    "bool": [False, True],
    "enum": [0, 1, 2],
    "fixed32": [0, 1, (1 << 32) - 1],
    "fixed64": [0, 1, (1 << 64) - 1],
    "double": [0.0, -0.0, 1.5, -1e300, math.inf, 5e-324],
    "string": ["", "CPU:0", "größer als 0"],
    "bytes": [b"", b"\0", b"abc", bytes(range(256))],
    "payload": [b"", b"\0", b"x" * 1000],
}


def random_message(rng, cls, depth=0):
    """Any fields set to any values, at most one of a oneof; an entry of a map has both of its own."""
    message = cls()
    entry = cls.__name__.endswith("Entry")
    chosen = {name: rng.choice(members) for name, members in wire.plan(cls).oneofs.items()}
    for f in wire.plan(cls).fields:
        if (rng.random() < 0.3 and not entry) or (f.oneof and chosen[f.oneof] != f.attribute):
            continue
        make = ((lambda f=f: random_message(rng, f.message, depth + 1)) if f.message else
                lambda f=f: rng.choice(EDGES[f.kind.name]))
        made = [make() for _ in range(rng.randrange(4))] if f.repeated else make()
        if f.repeated and f.message and f.message.__name__.endswith("Entry"):
            made = list({e.key: e for e in made}.values())[:1]  # a map has a key once, in no order
        setattr(message, f.attribute, made)
    return message


def bits(value):
    """Comparable also where it is -0.0, and whatever kind of bytes it is."""
    if dataclasses.is_dataclass(value):
        return {f.name: bits(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, list):
        return [bits(v) for v in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    return struct.pack("<d", value) if isinstance(value, float) else value


ALL = [messages.ExecuteRequest, messages.ExecuteResponse, messages.HelloResponse, messages.Graph,
       messages.ListDevicesResponse, messages.StatsResponse]


class CodecTest(unittest.TestCase):
    def test_random_messages_come_back(self):
        rng = seeded("random_messages")
        for _ in range(2000):
            message = random_message(rng, rng.choice(ALL))
            encoded = message.encode()
            self.assertEqual(bits(type(message).decode(encoded)), bits(message))

    def test_known_bytes(self):
        """Examples of the protobuf documentation, and of ours in docs/wire.md."""
        self.assertEqual(messages.VersionRange(min=150).encode(), b"\x08\x96\x01")
        node = messages.Node(op=40, src=[0, 1])
        self.assertEqual(node.encode(), b"\x08\x28\x1a\x02\x00\x01")
        self.assertEqual(messages.Node(arg=[-1, 1]).encode(), b"\x22\x02\x01\x02")
        unpacked = b"\x18\x00\x18\x01"
        self.assertEqual(messages.Node.decode(unpacked).src, [0, 1])
        request = messages.ExecuteRequest(op_id=4, write=messages.Write(handle=1), data=b"ab")
        self.assertEqual(request.encode(), b"\x08\x04\x2a\x02\x08\x01\x7a\x02ab")

    def test_unknown_fields_are_passed_over(self):
        late = b"\xa0\x06\x05" + b"\xaa\x06\x03abc" + b"\xb5\x06abcd" + b"\xb9\x06abcdefgh"
        self.assertEqual(messages.Status.decode(late + b"\x08\x05"), messages.Status(code=5))
        # A known number with another wire type is not that field.
        self.assertEqual(messages.Status.decode(b"\x0a\x01a"), messages.Status())

    def test_a_oneof_keeps_the_last_and_messages_merge(self):
        twice = (messages.ExecuteRequest(free=messages.Free(handles=[1])).encode()
                 + messages.ExecuteRequest(sync=messages.Sync()).encode())
        decoded = messages.ExecuteRequest.decode(twice)
        self.assertIsNone(decoded.free)
        self.assertIsNotNone(decoded.sync)
        merged = (messages.ExecuteRequest(write=messages.Write(handle=7)).encode()
                  + messages.ExecuteRequest(write=messages.Write(offset=9)).encode())
        self.assertEqual(messages.ExecuteRequest.decode(merged).write,
                         messages.Write(handle=7, offset=9))

    def test_a_payload_is_not_copied(self):
        message = messages.ExecuteResponse(op_id=1, data=b"x" * 100).encode()
        data = messages.ExecuteResponse.decode(message).data
        self.assertIsInstance(data, memoryview)
        self.assertIs(data.obj, message)

    def test_malformed_messages_are_refused(self):
        for name, data in {
            "a tag cut off": b"\x80",
            "a number cut off": b"\x08\xff",
            "a number of eleven bytes": b"\x08" + b"\xff" * 10 + b"\x01",
            "a number of 65 bits": b"\x08" + b"\xff" * 9 + b"\x02",
            "bytes cut off": b"\x7a\x05ab",
            "a huge length": b"\x7a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
            "a group": b"\x0b\x0c",
            "field number 0": b"\x00\x01",
            "eight bytes cut off": b"\x11abc",
            "an inner message cut off": b"\x12\x02\x08\xff",
            "text that is not UTF-8": b"\x12\x03\x12\x01\xff",
            "a packed list cut off": b"\x1a\x01\x80",
        }.items():
            kind = messages.Node if "packed" in name else messages.ExecuteResponse
            with self.subTest(name), self.assertRaises(wire.DecodeError):
                kind.decode(data)

    def test_values_that_do_not_fit_are_refused(self):
        for message in (messages.Run(timeout_ms=1 << 32), messages.Run(handles=[-1]),
                        messages.Variable(id=1 << 63), messages.Variable(value=-(1 << 63) - 1),
                        messages.CloseRequest(epoch=1 << 64), messages.Run(timeout_ms=0.5)):
            with self.subTest(message), self.assertRaises((ValueError, TypeError)) as context:
                message.encode()
            self.assertRegex(str(context.exception), r"^\w+\.\w+: ")

    def test_random_bytes_end_in_a_message_or_an_error(self):
        rng = seeded("random_bytes")
        ended = [0, 0]
        for i in range(6000):
            cls = rng.choice(ALL)
            if i % 3 == 0:
                data = bytearray(rng.randbytes(rng.randrange(40)))
            else:  # a message with a few bytes changed, cut out or put in
                data = bytearray(random_message(rng, cls).encode())
                for _ in range(rng.randrange(1, 4)):
                    at = rng.randrange(len(data) + 1)
                    data[at:at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
            try:
                message = cls.decode(bytes(data))
            except wire.DecodeError:
                ended[1] += 1
                continue
            ended[0] += 1
            again = cls.decode(message.encode())
            self.assertEqual(bits(again), bits(message), bytes(data))
        self.assertGreater(min(ended), 500)


PROTOC = os.environ.get("PROTOC") or shutil.which("protoc")


@unittest.skipUnless(PROTOC, "there is no protoc")
class ProtocTest(unittest.TestCase):
    """Both directions through the other implementation: messages -> text -> messages."""

    def protoc(self, mode, kind, data):
        return subprocess.run(
            [PROTOC, f"--{mode}=telegrad.v1.{kind}", "-I", path("proto"),
             *(path("proto", "telegrad", "v1", f + ".proto") for f in FILES)],
            input=data, stdout=subprocess.PIPE, check=True).stdout

    def test_protoc_reads_what_we_write_and_we_read_what_it_writes(self):
        rng = seeded("protoc")
        for cls in (messages.ExecuteRequest, messages.ExecuteResponse, messages.Graph):
            for _ in range(3):
                message = random_message(rng, cls)
                text = self.protoc("decode", cls.__name__, message.encode())
                again = cls.decode(self.protoc("encode", cls.__name__, text))
                self.assertEqual(bits(again), bits(message))


class GeneratedTest(unittest.TestCase):
    def test_the_tables_of_ops_and_types_are_those_of_the_server(self):
        subprocess.run([sys.executable, "-B", os.path.join(PACKAGE, "make_tables.py"),
                        "--check"], check=True)


class TypesTest(unittest.TestCase):
    def test_the_package_is_typed(self):
        mypy = shutil.which("mypy")
        if mypy is None:
            self.skipTest("there is no mypy")
        with tempfile.TemporaryDirectory() as cache:
            subprocess.run([mypy, "--cache-dir", cache, "-p", "telegrad"], cwd=PACKAGE, check=True)


if __name__ == "__main__":
    main()
