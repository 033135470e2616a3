"""Servers that answer wrongly: each wrong answer ends in an error of its own, and none in a hang."""

import concurrent.futures
import queue
import threading
import unittest

import grpc
import numpy as np
from support import main, raises, run_async, seeded

import telegrad
from telegrad import Code, aio
from telegrad import _messages as messages

HELLO = messages.HelloResponse(protocol=1, graph_form=2, server="fake", chunk_bytes=1 << 20)


class FakeServer(grpc.GenericRpcHandler):
    """Answers a Hello with `hello`, and each message of Execute with what `answer` gives for it."""

    def __init__(self, answer, hello=HELLO.encode()):
        self.answer, self.hello = answer, hello
        self.requests = queue.Queue()
        self.stop_waiting = threading.Event()
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(8), handlers=(self,))
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def stop(self):
        self.stop_waiting.set()
        self.server.stop(0).wait()

    def service(self, details):
        if details.method.endswith("/Execute"):
            return grpc.stream_stream_rpc_method_handler(self.execute)
        return grpc.unary_unary_rpc_method_handler(lambda request, context: self.hello)

    def execute(self, requests, context):
        for data in requests:
            request = messages.ExecuteRequest.decode(data)
            self.requests.put(request)
            for answer in self.answer(request) or ():
                if isinstance(answer, tuple):
                    context.abort(*answer)
                if answer is None:  # says nothing any more, and does not end
                    self.stop_waiting.wait()
                    return
                yield answer if isinstance(answer, bytes) else answer.encode()


def opened(request):
    return messages.ExecuteResponse(op_id=request.op_id, open=messages.OpenResult(session=1))


def answering(**wrong):
    """Opens properly; of each operation named gives the answers that its function makes."""
    def answer(request):
        for name, make in wrong.items():
            if getattr(request, name, None) is not None:
                return make(request)
        return [opened(request)] if request.open else []

    return answer


def response(request, **fields):
    return messages.ExecuteResponse(op_id=request.op_id, **fields)


def chunk(request, offset, last, data):
    return response(request, read=messages.ReadChunk(offset=offset, last=last), data=data)


# What is done, what the server answers, and what the error says.
READS = {
    "an earlier operation's": (lambda r: [messages.ExecuteResponse(op_id=1)], "waits for none"),
    "one of no operation": (lambda r: [messages.ExecuteResponse(op_id=77)], "was not answered"),
    "none for a later one": (
        lambda r: [messages.ExecuteResponse(op_id=r.op_id + 1, has=messages.HasResult())],
        "was not answered"),
    "no message": (lambda r: [b"\xff\xff"], "malformed"),
    "a truncated message": (lambda r: [chunk(r, 0, True, b"x" * 8).encode()[:-3]], "malformed"),
    "an answer to something else": (lambda r: [response(r, has=messages.HasResult())], "no result"),
    "nothing": (lambda r: [response(r)], "no result"),
    "too few bytes": (lambda r: [chunk(r, 0, True, b"x" * 7)], "7 of 8 bytes"),
    "too many bytes": (lambda r: [chunk(r, 0, True, b"x" * 9)], "9 bytes"),
    "too many in the second chunk": (
        lambda r: [chunk(r, 0, False, b"x" * 4), chunk(r, 4, True, b"x" * 5)], "5 bytes"),
    "a gap": (lambda r: [chunk(r, 0, False, b"x"), chunk(r, 2, True, b"x" * 6)], "at 2"),
    "a chunk from before the buffer": (lambda r: [chunk(r, (1 << 64) - 1, True, b"x")], "at 1844"),
    "empty chunks without end": (lambda r: [chunk(r, 0, False, b"")] * 1000, "empty"),
    "a huge one": (lambda r: [b"\x7a\xff\xff\xff\xff\x7f"], "malformed"),
}


class HostileTest(unittest.TestCase):
    def serve(self, answer, **options):
        server = FakeServer(answer, **options)
        self.addCleanup(server.stop)
        return server

    def connect(self, answer):
        connection = telegrad.connect(self.serve(answer).address)
        self.addCleanup(connection.close)
        return connection

    def session(self, answer, **options):
        return self.connect(answer).session(timeout=60, **options)

    def test_wrong_answers_to_a_read(self):
        for name, (make, words) in READS.items():
            with self.subTest(name):
                session = self.session(answering(read=make))
                buffer = session.empty((8,), "u8")
                with raises(self, Code.INTERNAL, words):
                    buffer.numpy()
                with raises(self, Code.INTERNAL, words):  # the session has ended
                    session.empty((1,))

    def test_wrong_answers_to_a_read_with_asyncio(self):
        async def run():
            for name, (make, words) in READS.items():
                with self.subTest(name):
                    async with await aio.connect(self.serve(answering(read=make)).address) as c:
                        session = c.session(timeout=60)
                        buffer = await session.empty((8,), "u8")
                        with raises(self, Code.INTERNAL, words):
                            await buffer.numpy()
                        with raises(self, Code.INTERNAL, words):
                            await session.empty((1,))

        run_async(run())

    def test_wrong_hashes_and_models(self):
        for digest in (b"", b"x" * 31, b"x" * 33):
            session = self.session(answering(
                put=lambda r: [response(r, put=messages.PutResult(hash=digest))]))
            with raises(self, Code.INTERNAL, f"hash of {len(digest)} bytes"):
                session.put(b"graph")
        for slot, words in ((messages.ImportedSlot(role=9, name="x", dtype=12), "role 9"),
                            (messages.ImportedSlot(name="x", dtype=99), "type 99"),
                            (messages.ImportedSlot(name="x", dtype=12, dims=[-1], bytes=8), "[-1]"),
                            (messages.ImportedSlot(name="x", dtype=12, dims=[3], bytes=8), "8 bytes")):
            session = self.session(answering(import_=lambda r: [response(
                r, import_=messages.ImportResult(hash=b"x" * 32, slots=[slot]))]))
            with self.subTest(words), self.assertRaises(telegrad.TelegradError) as context:
                session.import_model(b"model")
            self.assertIn(words, str(context.exception))

    def test_refused_at_the_door(self):
        def refuse(request):
            return [response(request, status=messages.Status(code=8, message="too many sessions"))]

        session = self.session(answering(open=refuse))
        with raises(self, Code.RESOURCE_EXHAUSTED, "too many sessions"):
            session.sync()
        session = self.session(answering(open=lambda r: [(grpc.StatusCode.UNAUTHENTICATED, "who?")]))
        with raises(self, Code.UNAUTHENTICATED, "who?"):
            session.sync()
        session = self.session(answering(open=lambda r: [response(r)]))
        with raises(self, Code.INTERNAL, "OpenResult"):
            session.sync()
        session = self.session(answering(), resumable=True)
        with raises(self, Code.INTERNAL, "no token"):
            session.sync()

    def test_a_stream_that_ends_early(self):
        session = self.session(answering(sync=lambda r: [(grpc.StatusCode.INTERNAL, "fell over")]))
        with raises(self, Code.INTERNAL, "fell over", "may have run"):
            session.sync()

    def test_a_silent_server_costs_the_timeout(self):
        session = self.session(answering(read=lambda r: [None]))
        buffer = session.empty((8,), "u8")
        with raises(self, Code.DEADLINE_EXCEEDED, "0.05 s"):
            buffer.numpy(timeout=0.05)
        with raises(self, Code.DEADLINE_EXCEEDED, "under way"):
            session.close(timeout=0.05)

    def test_a_silent_server_costs_the_timeout_with_asyncio(self):
        async def run():
            async with await aio.connect(self.serve(answering(read=lambda r: [None])).address) as c:
                session = c.session()
                buffer = await session.empty((8,), "u8")
                with raises(self, Code.DEADLINE_EXCEEDED, "0.05 s"):
                    await buffer.numpy(timeout=0.05)
                with raises(self, Code.DEADLINE_EXCEEDED, "under way"):
                    await session.close(timeout=0.05)

        run_async(run())

    def test_a_server_that_does_not_read_holds_its_client_up(self):
        """What a client may have in memory for it is bounded."""
        session = self.session(lambda r: [opened(r), None] if r.open else [])
        array = np.zeros(40 << 20, np.uint8)
        done = threading.Event()

        def upload():
            try:
                for _ in range(8):
                    session.upload(array)
            except telegrad.TelegradError:
                done.set()

        thread = threading.Thread(target=upload)
        thread.start()
        with session._changed:
            self.assertTrue(session._changed.wait_for(lambda: not session._core.has_room, 60))
            self.assertLessEqual(session._core._held_bytes, (64 << 20) + (2 << 20))
        session._abort()
        thread.join(60)
        self.assertTrue(done.is_set())
        session = self.session(lambda r: [opened(r), None] if r.open else [])
        session.timeout = 0.05
        with raises(self, Code.DEADLINE_EXCEEDED, "write: ", "took nothing"):
            for _ in range(8):
                session.upload(array)

        async def run():
            server = self.serve(lambda r: [opened(r), None] if r.open else [])
            async with await aio.connect(server.address) as connection:
                session = connection.session(timeout=0.05)
                with raises(self, Code.DEADLINE_EXCEEDED, "write: ", "took nothing"):
                    for _ in range(8):
                        await session.upload(array)

        run_async(run())

    def test_a_client_asks_for_acknowledgements(self):
        """So that neither side keeps more than it must of operations that are not answered."""
        server = self.serve(answering(sync=lambda r: [response(r)]))
        with telegrad.connect(server.address).session(timeout=60) as session:
            for _ in range(3000):
                session.free(telegrad.Buffer(session, 1, (1,), telegrad.dtype("u8"), ""))
        silent = longest = 0
        while not server.requests.empty():
            request = server.requests.get()
            silent = 0 if request.sync else silent + 1
            longest = max(longest, silent)
        self.assertLessEqual(longest, 1024)

    def test_a_client_acknowledges_answers(self):
        """At least every 1,024, as the protocol has it, also where it has nothing else to say."""
        def opened_for_long(request):
            return [response(request, open=messages.OpenResult(session=1, token=b"t" * 16))]

        server = self.serve(answering(open=opened_for_long, sync=lambda r: [response(r)]))
        session = telegrad.connect(server.address).session(resumable=True, timeout=60)
        for future in [session.sync_future() for _ in range(1020)]:
            future.result(60)
        acknowledged = last = 0
        while acknowledged < 1020 - 256:  # its messages come in any order with its own answers
            request = server.requests.get(timeout=60)
            self.assertLessEqual(request.acknowledged, 1021)
            self.assertLessEqual(request.op_id, last + 1)
            acknowledged = max(acknowledged, request.acknowledged)
            last = max(last, request.op_id)
        session._abort()

    def test_a_wrong_hello(self):
        for hello, words in ((messages.HelloResponse(protocol=9).encode(), "protocol 9"),
                             (b"\xff", "malformed")):
            with self.subTest(words), self.assertRaises(telegrad.TelegradError) as context:
                telegrad.connect(self.serve(answering(), hello=hello).address)
            self.assertIn(words, str(context.exception))
        for chunk_bytes in (0, 1, 1 << 63):
            hello = messages.HelloResponse(protocol=1, graph_form=2, chunk_bytes=chunk_bytes)
            connection = telegrad.connect(self.serve(answering(), hello=hello.encode()).address)
            self.assertTrue(4096 <= connection.server.chunk_bytes <= 40 << 20)
            connection.close()

    def test_random_answers(self):
        """Bytes of any kind, also proper answers that were changed: errors, or values."""
        rng = seeded("random_answers")

        def damaged(request):
            data = bytearray(chunk(request, 0, True, b"x" * 8).encode())
            for _ in range(rng.randrange(3)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            return [bytes(data[:rng.randrange(len(data) + 4)])]

        connection = self.connect(answering(read=damaged))
        ended = [0, 0]
        for _ in range(150):
            session = connection.session(timeout=60)
            try:
                session.empty((8,), "u8").numpy(timeout=1)
                ended[0] += 1
            except telegrad.TelegradError as error:
                self.assertNotEqual(error.code, Code.UNAVAILABLE, error)
                ended[1] += 1
            session._abort()
        self.assertGreater(min(ended), 0, ended)


if __name__ == "__main__":
    main()
