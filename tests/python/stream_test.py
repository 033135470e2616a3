"""Sessions over HTTP/2 streams of this package's own: against the daemon, and against a server that is scripted frame by frame.

The frames of the script are made here, from RFC 9113 and RFC 7541, and not by the package.
"""

import signal
import socket
import struct
import threading
import time
import unittest

import support
from telegrad import _hpack as hpack
from telegrad import _messages as messages
from telegrad._http2 import Lost
from telegrad._stream import Stream

import numpy as np
import telegrad
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
            out += self.stream.receive()
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


class SessionTest(support.DaemonTest):
    def test_a_session_uses_it(self):
        with telegrad.connect(self.daemon.address) as connection, connection.session() as session:
            session.sync()
            self.assertIsNotNone(session._plain)
            with connection.session(resumable=True) as other:
                other.sync()
                self.assertIsNone(other._plain)

    def test_all_sizes_from_many_threads(self):
        rng = support.seeded("stream")
        with telegrad.connect(self.daemon.address) as connection, connection.session() as session:
            sizes = [rng.choice((0, 1, 4095, 4096, 65536, 3 << 20)) for _ in range(12)]
            failed = []

            def work(size):
                try:
                    array = np.random.default_rng(size).integers(0, 256, size, np.uint8)
                    for turn in range(5):
                        buffer = session.upload(array)
                        kept = session.read_future(buffer)  # the session's thread reads for this one
                        np.testing.assert_array_equal(buffer.numpy(), array)
                        np.testing.assert_array_equal(kept.result(60), array)
                        session.free(buffer)
                        session.sync()
                except BaseException as error:
                    failed.append(error)

            threads = [threading.Thread(target=work, args=(size,)) for size in sizes]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(failed, [])

    def test_a_future_that_nobody_waits_for_is_done(self):
        with telegrad.connect(self.daemon.address) as connection, connection.session() as session:
            session.sync()
            done = threading.Event()
            session.read_future(session.upload(np.arange(4))).add_done_callback(lambda _: done.set())
            self.assertTrue(done.wait(30))


class InterruptTest(unittest.TestCase):
    @unittest.skipUnless(hasattr(signal, "setitimer"), "no such timers here")
    def test_an_interrupt_while_waiting_leaves_the_session_usable(self):
        from hostile_test import FakeServer, opened

        released = threading.Event()

        def answer(request):
            if request.sync is not None:
                released.wait()
                return [messages.ExecuteResponse(op_id=request.op_id)]
            return [opened(request)] if request.open else []

        class Interrupt(Exception):
            pass

        def interrupt(*_):
            raise Interrupt

        server = FakeServer(answer)
        self.addCleanup(server.stop)
        connection = telegrad.connect(server.address)
        session = connection.session()
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            for _ in range(2):  # once while it opens, perhaps, and once when it is open
                with self.assertRaises(Interrupt):
                    signal.setitimer(signal.ITIMER_REAL, 0.3)
                    session.sync()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        released.set()
        session.sync(timeout=30)
        session.close()


if __name__ == "__main__":
    support.main()
