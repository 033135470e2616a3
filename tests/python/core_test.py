"""A session without input and output, against a model of the server, over a link that breaks anywhere.

The model says what the protocol promises: operations are carried out in order and once each, answers are kept until
they are acknowledged. Messages that are on the link when it breaks are lost.
"""

import concurrent.futures
import unittest
import unittest.mock
from collections import deque

import numpy as np
from support import main, raises, seeded

from telegrad import Code, dtypes
from telegrad import _messages as messages
from telegrad import _operations as operations
from telegrad._core import SessionCore, State, tell
from telegrad._operations import Violation

TOKEN = b"t" * 16
FAILING = 666  # freeing this handle fails
CONTENT = bytes(range(100))


class ModelServer:
    """One resumable session."""

    def __init__(self, test):
        self.test = test
        self.executed = []  # ids
        self.kept = deque()  # answers
        self.last = 0
        self.stream_open = False

    def connect(self):
        self.stream_open = False

    def take(self, data):
        """The answers to one message."""
        request = messages.ExecuteRequest.decode(data)
        while self.kept and self.kept[0].op_id <= request.acknowledged:
            self.kept.popleft()
        if not self.stream_open:
            return self.open(request)
        if request.op_id <= self.last:
            return []  # done before, or only an acknowledgement
        self.test.assertEqual(request.op_id, self.last + 1, "an operation is missing")
        self.last = request.op_id
        self.executed.append(request.op_id)
        answers = list(self.answers(request))
        self.kept.extend(answers)
        return answers

    def open(self, request):
        self.test.assertIsNotNone(request.open, "the first message is an open")
        self.stream_open = True
        if not request.open.token:
            self.test.assertEqual(self.executed, [], "nothing runs in a session without a name")
            self.last = request.op_id
        else:
            self.test.assertEqual(request.open.token, TOKEN)
        opened = messages.ExecuteResponse(op_id=request.op_id, open=messages.OpenResult(
            session=1, token=TOKEN, lease_ms=60_000, grace_ms=60_000, last_op_id=self.last))
        return [opened, *(self.kept if request.open.token else ())]

    def answers(self, request):
        if request.sync:
            yield messages.ExecuteResponse(op_id=request.op_id)
        elif request.has:
            yield messages.ExecuteResponse(op_id=request.op_id, has=messages.HasResult(
                has=request.has.hash[0] == 1))
        elif request.free and request.free.handles == [FAILING]:
            yield messages.ExecuteResponse(op_id=request.op_id, status=messages.Status(
                code=5, message="no such handle"))
        elif request.read:
            for at in (0, 60):
                part = CONTENT[at:at + 60]
                yield messages.ExecuteResponse(
                    op_id=request.op_id, data=part,
                    read=messages.ReadChunk(offset=at, last=at + len(part) == len(CONTENT)))


class CoreTest(unittest.TestCase):
    def core(self, **options):
        return SessionCore(**{"address": "there", "client": "test", "protocol": 1, "resumable": True,
                              "lease": None, "new_future": concurrent.futures.Future, **options})

    def submit_one(self, rng, core, wanted):
        """Any operation; `wanted` gets its future and what it must become."""
        kind = rng.randrange(6)
        if kind == 0:
            wanted.append((core.submit(operations.sync())[1], None))
        elif kind == 1:
            there = rng.randrange(2)
            wanted.append((core.submit(operations.has(bytes([there] * 32)))[1], bool(there)))
        elif kind == 2:
            sink = dtypes.Sink(dtypes.dtype("u8"), (len(CONTENT),))
            wanted.append((core.submit(operations.read(1, 0, sink))[1], CONTENT))
        elif kind == 3 and rng.random() < 0.1:
            core.submit(operations.free([FAILING]))
        else:
            core.submit(operations.free([rng.randrange(1, 9)]))

    def run_once(self, rng, breaks):
        core, server = self.core(), ModelServer(self)
        there, back = deque(), deque()
        wanted = []
        left = rng.randrange(10, 200)
        core.start_stream()
        server.connect()
        last = 0
        while last == 0 or not all(future.done() for future, _ in wanted):
            move = rng.randrange(5 if breaks else 4)
            if move == 0 and left > 0:
                self.submit_one(rng, core, wanted)
                left -= 1
                if left == 0:
                    last, future = core.submit(operations.sync())
                    wanted.append((future, None))
            elif move == 1:
                message = core.next_message() if rng.random() < 0.9 else core.idle_message()
                if message is not None:
                    there.append(message)
            elif move == 2 and there:
                back.extend(answer.encode() for answer in server.take(there.popleft()))
            elif move == 3 and back:
                tell(core.receive(back.popleft()))
            elif move == 4 and rng.random() < breaks:
                there.clear()
                back.clear()
                delay, told = core.stream_ended(Code.UNAVAILABLE, "cut", 0)
                self.assertIsNotNone(delay)
                self.assertEqual(told, [])
                core.start_stream()
                server.connect()
        self.assertEqual(server.executed, list(range(2, last + 1)))
        for future, value in wanted:
            if value is None and future.exception() is not None:  # a sync tells of an earlier error
                self.assertEqual(future.exception().code, Code.NOT_FOUND)
            else:
                got = future.result()
                self.assertEqual(got.tobytes() if isinstance(got, np.ndarray) else got, value)
        return core.resumed

    def test_each_operation_once_wherever_the_link_breaks(self):
        rng = seeded("breaks")
        resumed = sum(self.run_once(rng, breaks=0.1) for _ in range(80))
        self.assertGreater(resumed, 250)

    def test_without_breaks(self):
        rng = seeded("no_breaks")
        self.assertEqual(sum(self.run_once(rng, breaks=0) for _ in range(30)), 0)

    def test_who_waits_hears_whether_it_may_have_run(self):
        core = self.core(resumable=False)
        core.start_stream()
        futures = [core.submit(operations.sync())[1] for _ in range(2)]
        self.assertIsNotNone(core.next_message())  # open
        self.assertIsNotNone(core.next_message())  # the first sync
        delay, told = core.stream_ended(Code.UNAVAILABLE, "cut", 0)
        self.assertIsNone(delay)
        tell(told)
        self.assertIn("it may have run", str(futures[0].exception()))
        self.assertIn("it was not sent", str(futures[1].exception()))
        with raises(self, Code.UNAVAILABLE, "there is over: cut"):
            core.submit(operations.sync())

    def test_a_lost_device_is_told_from_other_errors(self):
        for lost in (False, True):
            core, server = self.core(), ModelServer(self)
            core.start_stream()
            for answer in server.take(core.next_message()):
                core.receive(answer.encode())
            op_id, future = core.submit(operations.sync())
            tell(core.receive(messages.ExecuteResponse(op_id=op_id, status=messages.Status(
                code=14, message="CPU:0", device_lost=lost)).encode()))
            self.assertIs(future.exception().code, Code.UNAVAILABLE)
            self.assertIs(future.exception().device_lost, lost)

    def test_a_session_is_given_up_after_its_grace(self):
        core, server = self.core(), ModelServer(self)
        core.start_stream()
        for answer in server.take(core.next_message()):
            core.receive(answer.encode())
        self.assertIsNotNone(core.stream_ended(Code.UNAVAILABLE, "cut", 59)[0])
        core.start_stream()
        self.assertIsNone(core.stream_ended(Code.UNAVAILABLE, "cut", 61)[0])
        self.assertIs(core.state, State.ENDED)

    def test_a_server_cannot_take_back_what_it_answered(self):
        for last_op_id in (0, 2, 9):
            core, server = self.core(), ModelServer(self)
            core.start_stream()
            for _ in range(2):
                core.submit(operations.sync())
            for _ in range(3):
                for answer in server.take(core.next_message()):
                    tell(core.receive(answer.encode()))
            core.stream_ended(Code.UNAVAILABLE, "cut", 0)
            core.start_stream()
            core.next_message()
            resumed = messages.ExecuteResponse(op_id=3, open=messages.OpenResult(
                token=TOKEN, grace_ms=1, last_op_id=last_op_id))
            with self.subTest(last_op_id), self.assertRaises(Violation) as context:
                core.receive(resumed.encode())
            self.assertIn("expected 3 to 3", context.exception.message)

    def test_a_read_that_is_answered_at_once_is_not_decoded(self):
        core = self.core(resumable=False)
        core.start_stream()
        opened = messages.ExecuteResponse(op_id=1, open=messages.OpenResult(session=1))
        self.assertEqual(core.receive(opened.encode()), [])

        def answer(op_id, data, **fields):
            return messages.ExecuteResponse(op_id=op_id, data=data, **fields).encode()

        def read():
            core.submit(operations.free([1]))  # has no answer, and is passed over
            sink = dtypes.Sink(dtypes.dtype("u8"), (len(CONTENT),))
            return core.submit(operations.read(1, 0, sink))

        whole = messages.ReadChunk(last=True)
        op_id, future = read()
        with unittest.mock.patch.object(messages.ExecuteResponse, "decode", side_effect=AssertionError):
            tell(core.receive(memoryview(answer(op_id, CONTENT, read=whole))))
        self.assertEqual(future.result().tobytes(), CONTENT)
        # What is not that answer to the byte is decoded: parts, an error, and what breaks the protocol.
        op_id, future = read()
        tell(core.receive(answer(op_id, CONTENT[:60], read=messages.ReadChunk())))
        tell(core.receive(answer(op_id, CONTENT[60:], read=messages.ReadChunk(offset=60, last=True))))
        self.assertEqual(future.result().tobytes(), CONTENT)
        op_id, future = read()
        tell(core.receive(answer(op_id, b"", status=messages.Status(code=5, message="no such handle"))))
        with raises(self, Code.NOT_FOUND, "no such handle"):
            future.result()
        for wrong in (answer(read()[0], CONTENT[1:], read=whole), answer(read()[0], CONTENT, read=whole) + b"x"):
            with self.assertRaises(Violation):
                core.receive(wrong)


if __name__ == "__main__":
    main()
