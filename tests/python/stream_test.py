"""HTTP/2 streams of this package's own against a server that is scripted frame by frame.

The frames of the script are made here, from RFC 9113 and RFC 7541, and not by the package.
"""

import os
import signal
import socket
import struct
import threading
import time
import unittest
import unittest.mock

import support
from telegrad import _hpack as hpack
from telegrad._stream import Stream
from telegrad.errors import Code

OK = b"\x00\x0bgrpc-status\x010"  # a literal field that is in no table
BEGIN = b"\x88"  # :status 200


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def message(data):
    return b"\x00" + struct.pack(">I", len(data)) + data


def field(name, value):
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


class Peer:
    """One connection: takes frames one by one, and says what it is told to."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]

    def accept(self):
        self.socket, _ = self.listener.accept()
        self.socket.settimeout(20)
        self.file = self.socket.makefile("rb")
        assert self.file.read(24) == b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

    def say(self, *frames):
        self.socket.sendall(b"".join(frames))

    def take(self):
        head = self.file.read(9)
        size = int.from_bytes(head[:3], "big")
        return head[3], head[4], int.from_bytes(head[5:], "big"), self.file.read(size)

    def take_until(self, kind):
        while (got := self.take())[0] != kind:
            pass
        return got

    def close(self):
        self.file.close()
        self.socket.close()
        self.listener.close()


class ScriptTest(unittest.TestCase):
    def setUp(self):
        self.peer = Peer()
        self.cleared = threading.Event()
        self.stream = Stream(self.peer.address, "/a.B/C", [("authorization", "Bearer t")], 1 << 20, 5, self.cleared.set)
        self.peer.accept()
        self.addCleanup(self.peer.close)
        self.addCleanup(self.stream.release)

    def received(self, count=1):
        out = []
        while len(out) < count and self.stream.ended is None:
            self.assertTrue(self.stream.await_input(10))
            out += map(bytes, self.stream.receive())  # they stay until the next call
        return out

    def end(self, *frames):
        self.peer.say(*frames)
        self.assertEqual(self.received(), [])
        return self.stream.ended

    def test_the_request(self):
        kind, _, stream, payload = self.peer.take()
        self.assertEqual((kind, stream), (4, 0))
        settings = dict(struct.iter_unpack(">HI", payload))
        self.assertEqual((settings[1], settings[2]), (0, 0))  # no dynamic table, no pushed streams
        kind, flags, stream, block = self.peer.take_until(1)
        self.assertEqual((flags, stream), (4, 1))
        self.assertEqual(hpack.decode(block), {":method": "POST", ":scheme": "http", ":path": "/a.B/C",
                         ":authority": self.peer.address, "te": "trailers", "content-type": "application/grpc",
                         "authorization": "Bearer t"})

    def test_messages_however_they_are_cut(self):
        sent = [b"", b"x", bytes(range(256)) * 300, b"end"]
        data = b"".join(map(message, sent))
        padded = frame(0, 8, 1, b"\x04" + data[:100] + b"\0" * 4)
        stream = (frame(4, 0, 0) + frame(1, 4, 1, BEGIN) + padded + frame(99, 0, 1, b"of no known kind") +
                  b"".join(frame(0, 0, 1, data[i:i + 7001]) for i in range(100, len(data), 7001)) + frame(6, 0, 0, b"12345678"))
        for part in (1, 13, len(stream)):
            with self.subTest(part=part):
                if part == 1:  # not the whole of it, which would take long
                    self.peer.say(*(stream[i:i + 1] for i in range(200)))
                    self.peer.say(stream[200:])
                else:
                    whole = stream if part > 13 else stream
                    whole = whole.replace(frame(1, 4, 1, BEGIN), b"", 1)
                    for i in range(0, len(whole), max(part, len(whole) // 50)):
                        self.peer.say(whole[i:i + max(part, len(whole) // 50)])
                self.assertEqual(self.received(len(sent)), sent)
                while (got := self.peer.take_until(6))[1] != 1:
                    pass
                self.assertEqual(got, (6, 1, 0, b"12345678"))  # the ping is answered

    def test_long_messages_one_behind_another(self):
        sent = [bytes([i]) * size for i, size in enumerate((50_000, 50_001, 49_000, 3, 70_000, 1 << 20, 60_000))]
        data = b"".join(map(message, sent)) * 3
        self.peer.say(frame(1, 4, 1, BEGIN))
        said = threading.Thread(target=self.peer.say, args=[frame(0, 0, 1, data[i:i + 16000]) for i in range(0, len(data), 16000)])
        said.start()
        got = self.received(len(sent) * 3)
        said.join()
        self.assertEqual([len(m) for m in got], [len(m) for m in sent * 3])
        self.assertEqual(got, sent * 3)

    def test_a_peer_that_takes_little_at_a_time(self):
        self.peer.say(frame(4, 0, 0, struct.pack(">HI", 4, 10)))
        self.stream.await_input(10)
        self.stream.receive()
        wanted = bytes(range(256)) * 600
        self.stream.put(wanted)
        self.stream.put(b"behind it")
        self.stream.flush()
        self.assertFalse(self.stream.is_clear)
        got, total = b"", len(wanted) + len(b"behind it") + 10
        while len(got) < total:
            kind, _, stream, payload = self.peer.take()
            if kind != 0:
                continue
            self.assertLessEqual(len(payload), 16384)
            got += payload
            grant = struct.pack(">I", max(len(payload), 5000))
            self.peer.say(frame(8, 0, 1, grant), frame(8, 0, 0, grant))
            if len(got) < total:
                self.stream.await_input(10)
                self.stream.receive()
        self.assertEqual(got, message(wanted) + message(b"behind it"))
        self.assertTrue(self.cleared.wait(10))

    def test_a_peer_that_reads_late(self):
        self.peer.say(frame(4, 0, 0, struct.pack(">HI", 4, 1 << 30)), frame(8, 0, 0, struct.pack(">I", 1 << 30)))
        self.stream.await_input(10)
        self.stream.receive()
        wanted = bytes(32 << 20)  # more than the system takes
        self.stream.put(wanted)
        self.stream.flush()  # does not wait
        self.assertFalse(self.stream.is_clear)
        got = 0
        while got < len(wanted) + 5:
            kind, _, _, payload = self.peer.take()
            got += len(payload) if kind == 0 else 0
        self.assertTrue(self.cleared.wait(10))

    def test_who_found_an_answer_in_the_way_is_told_when_it_is_sent(self):
        for payload in (frame(6, 0, 0, b"12345678"), frame(0, 0, 1, message(bytes(1 << 19))) * 9):
            self.cleared.clear()
            threading.Thread(target=self.peer.say, args=(payload,)).start()
            while not self.cleared.is_set():
                self.assertTrue(self.stream.await_input(10))
                self.stream.receive()

    def test_what_a_peer_does_not_take_is_bounded(self):
        self.peer.say(frame(4, 0, 0, struct.pack(">HI", 4, 1 << 30)), frame(8, 0, 0, struct.pack(">I", 1 << 30)))
        self.received(0)
        self.stream.await_input(10)
        self.stream.receive()
        self.stream.put(bytes(32 << 20))
        self.stream.flush()
        ended = self.end(*[frame(6, 0, 0, b"12345678")] * 2000)
        self.assertIn("takes no answers", ended.details)

    def test_windows_of_other_streams_are_none_of_this_one(self):
        self.peer.say(frame(4, 0, 0, struct.pack(">HI", 4, 0)), frame(8, 0, 3, struct.pack(">I", 1000)))
        self.stream.await_input(10)
        self.stream.receive()
        self.stream.put(b"has to wait")
        self.stream.flush()
        self.assertFalse(self.stream.is_clear)

    def test_a_server_that_gives_no_sign_of_life(self):
        with unittest.mock.patch("telegrad._stream._SILENCE", 0.05), unittest.mock.patch("telegrad._stream._SIGN", 20):
            self.assertFalse(self.stream.await_input(0.01))  # too short a time to say that
            answers = 3

            def live():
                for _ in range(answers):
                    self.peer.say(frame(6, 1, 0, self.peer.take_until(6)[3]))

            server = threading.Thread(target=live)
            server.start()
            for _ in range(answers):
                self.assertTrue(self.stream.await_input(None))
                self.assertEqual((self.stream.receive(), self.stream.ended), ([], None))
            server.join()
        with unittest.mock.patch("telegrad._stream._SILENCE", 0.05), unittest.mock.patch("telegrad._stream._SIGN", 0.05):
            self.assertTrue(self.stream.await_input(100))
            self.assertEqual(self.stream.receive(), [])
        self.assertEqual(self.stream.ended.code, Code.UNAVAILABLE)
        self.assertIn("no sign of life", self.stream.ended.details)

    def test_what_is_sent_in_the_middle_of_sending_comes_behind_it(self):
        class Interrupting:
            def __init__(self, connection, also):
                self.connection, self.also = connection, [also]

            def sendmsg(self, *args):
                while self.also:
                    self.also.pop()()
                return self.connection.sendmsg(*args)

            def __getattr__(self, name):
                return getattr(self.connection, name)

        frames = self.stream._frames
        frames._socket = Interrupting(frames._socket, lambda: (self.stream.put(b"second"), self.stream.flush()))
        sender = threading.Thread(target=lambda: (self.stream.put(b"first"), self.stream.flush()), daemon=True)
        sender.start()
        sender.join(20)
        self.assertFalse(sender.is_alive())
        self.assertEqual([self.peer.take_until(0)[3] for _ in range(2)], [message(b"first"), message(b"second")])

    def test_a_long_wait(self):
        self.peer.say(frame(4, 0, 0))
        self.assertTrue(self.stream.await_input(1e15))

    @unittest.skipUnless(hasattr(signal, "SIGPIPE") and hasattr(os, "fork"), "no such signal here")
    def test_a_peer_that_is_gone_ends_no_process(self):
        self.peer.close()
        self.received()

        def child():
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            for _ in range(2):
                self.stream.put(b"into nothing")
                self.stream.flush()

        self.assertEqual(support.status_of(child), 0)

    def test_the_last_message_comes_before_the_end(self):
        self.peer.say(frame(1, 4, 1, BEGIN), frame(0, 0, 1, message(b"last")), frame(1, 5, 1, OK))
        self.assertEqual(self.received(), [b"last"])
        while self.stream.ended is None:
            self.stream.await_input(10)
            self.stream.receive()
        self.assertEqual(self.stream.ended.code, Code.OK)

    def test_how_streams_end(self):
        text = field(b"grpc-status", b"8") + field(b"grpc-message", b"no%20room: %C3%A9")
        cases = {
            "a status": ([frame(1, 5, 1, BEGIN + text)], Code.RESOURCE_EXHAUSTED, "no room: é"),
            "a status of digits that are none": ([frame(1, 5, 1, field(b"grpc-status", b"\xc2\xb2"))], Code.UNKNOWN, ""),
            "a status that is too long": ([frame(1, 5, 1, field(b"grpc-status", b"0" * 120))], Code.UNKNOWN, ""),
            "in parts": ([frame(1, 1, 1, BEGIN + text[:9]), frame(9, 4, 1, text[9:])], Code.RESOURCE_EXHAUSTED, "no room"),
            "no status": ([frame(1, 5, 1, BEGIN)], Code.UNKNOWN, ""),
            "data at the end": ([frame(1, 4, 1, BEGIN), frame(0, 1, 1)], Code.INTERNAL, "without a status"),
            "reset": ([frame(3, 0, 1, struct.pack(">I", 7))], Code.UNAVAILABLE, "reset"),
            "no streams": ([frame(7, 0, 0, struct.pack(">II", 0, 0) + b"closing")], Code.UNAVAILABLE, "closing"),
            "a proxy": ([frame(1, 5, 1, b"\x08\x03503")], Code.UNAVAILABLE, "503"),
            "a long frame": ([b"\xff\xff\xff" + bytes(6)], Code.UNAVAILABLE, "16777215"),
            "a long message": ([frame(1, 4, 1, BEGIN), frame(0, 0, 1, b"\0\x7f\0\0\0")], Code.RESOURCE_EXHAUSTED, "at most"),
            "compressed": ([frame(0, 0, 1, b"\1\0\0\0\1x")], Code.INTERNAL, "compressed"),
            "a table": ([frame(1, 4, 1, b"\xbe")], Code.UNAVAILABLE, "index 62"),
            "padding": ([frame(0, 8, 1, b"\x09x")], Code.UNAVAILABLE, "padding"),
            "pushed": ([frame(5, 4, 1, bytes(4))], Code.UNAVAILABLE, "not allowed"),
            "a ping": ([frame(6, 0, 0, b"123")], Code.UNAVAILABLE, "ping of 3 bytes"),
            "a window": ([frame(8, 0, 0, b"\x7f\xff\xff\xff")], Code.UNAVAILABLE, "too large"),
            "headers without end": ([frame(1, 0, 1)] + [frame(9, 0, 1, bytes(16000))] * 5, Code.UNAVAILABLE, "too long"),
        }
        for name, (frames, code, words) in cases.items():
            with self.subTest(name):
                self.setUp()
                ended = self.end(*frames)
                self.assertEqual(ended.code, code, ended)
                self.assertIn(words, ended.details)

    def test_a_connection_that_breaks(self):
        self.peer.say(frame(0, 0, 1, message(b"half")[:7]))
        self.peer.close()
        self.assertEqual(self.received(), [])
        self.assertEqual(self.stream.ended.code, Code.UNAVAILABLE)
        self.stream.put(b"into nothing")
        self.stream.flush()

    def test_cancel(self):
        threading.Timer(0.05, self.stream.cancel).start()
        self.assertEqual(self.received(), [])
        self.assertEqual(self.stream.ended.code, Code.CANCELLED)
        self.assertEqual(self.peer.take_until(3)[3], struct.pack(">I", 8))


class HpackTest(unittest.TestCase):
    def test_examples_of_the_rfc(self):
        self.assertEqual(hpack.unpacked(bytes.fromhex("f1e3c2e5f23a6ba0ab90f4ff")), b"www.example.com")
        self.assertEqual(hpack.unpacked(bytes.fromhex("a8eb10649cbf")), b"no-cache")
        self.assertEqual(hpack.unpacked(bytes.fromhex("d07abe941054d444a8200595040b8166e082a62d1bff")),
                         b"Mon, 21 Oct 2013 20:13:21 GMT")
        self.assertEqual(hpack._integer(1337, 5), b"\x1f\x9a\x0a")

    def test_what_is_no_header_block(self):
        for block in (b"\x80", b"\x00", b"\x00\x05ab", b"\x3f\xe1\x1f", b"\x7f" + b"\xff" * 9, b"\x00\x81\x00\x00",
                      b"\x00\x84\xff\xff\xff\xff\x00"):
            with self.subTest(block), self.assertRaises(hpack.Malformed):
                hpack.decode(block)


if __name__ == "__main__":
    support.main()
