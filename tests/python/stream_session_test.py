"""Sessions on streams of this package's own, against the daemon: threads, forks, interrupts and signals' handlers."""

import os
import signal
import subprocess
import sys
import threading
import unittest
import unittest.mock

import support
from telegrad import _messages as messages
from telegrad._future import Answer
from telegrad._plain import Plain
from telegrad._session import SessionBase
from telegrad._stream import Ended

import numpy as np
import telegrad
from telegrad.errors import Code


def grpc_lets_fork():
    """Whether a process with a channel can fork: with Debian 13's grpcio 1.51.1-6, gRPC's own handler waits for ever."""
    script = ("import grpc, os; channel = grpc.insecure_channel('127.0.0.1:9'); pid = os.fork(); "
              "os._exit(0) if pid == 0 else os.waitpid(pid, 0); os._exit(0)")
    try:
        return subprocess.run([sys.executable, "-c", script], timeout=10, stderr=subprocess.DEVNULL).returncode == 0
    except subprocess.TimeoutExpired:
        return False


class PlainTest(unittest.TestCase):
    def test_a_deadline_holds_where_there_is_always_something_to_receive(self):
        class Endless:
            ended = None
            is_clear = True

            def await_input(self, seconds):
                return True

            def receive(self):
                return []

        lock, stream = threading.RLock(), Endless()
        plain = Plain(None, threading.Condition(lock), lock, lambda clear: stream)
        leader = threading.Thread(target=plain.lead, args=(Answer(), 0.1))
        leader.start()
        leader.join(20)
        alive = leader.is_alive()
        stream.ended = Ended(Code.OK, "")
        leader.join()
        self.assertFalse(alive)


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

    @unittest.skipUnless(hasattr(os, "fork"), "no forks here")
    def test_a_fork_leaves_the_session_to_its_parent(self):
        if not grpc_lets_fork():
            self.skipTest("no process with a channel can fork with this grpcio, which is 1.51.1 of Debian 13")
        with telegrad.connect(self.daemon.address) as connection, connection.session() as session:
            buffer = session.upload(np.arange(4))

            def child():
                for use in (session.sync, buffer.numpy, lambda: session.upload(np.zeros(1 << 20))):
                    try:
                        use()
                        os._exit(2)
                    except telegrad.TelegradError as error:
                        if error.code != Code.FAILED_PRECONDITION or "forked" not in str(error):
                            os._exit(3)
                session.close()

            self.assertEqual(support.status_of(child), 0)
            np.testing.assert_array_equal(buffer.numpy(timeout=30), np.arange(4))

    def test_ctrl_c_while_sending_or_receiving_ends_only_the_call(self):
        with telegrad.connect(self.daemon.address) as connection, connection.session() as session:
            session.sync()
            before, core, stream = signal.getsignal(signal.SIGINT), session._core, session._plain._stream
            buffer = session.alloc(16)
            for owner, where in ((core, "submit"), (stream, "put"), (stream, "flush"), (stream, "receive"), (core, "receive")):
                with self.subTest(where):
                    own = getattr(owner, where)

                    def interrupted(*args, own=own):
                        signal.raise_signal(signal.SIGINT)
                        return own(*args)

                    with unittest.mock.patch.object(owner, where, interrupted), self.assertRaises(KeyboardInterrupt):
                        session.write(buffer, np.full(16, len(where), np.uint8))
                        session.sync(timeout=30)
                    self.assertIs(signal.getsignal(signal.SIGINT), before)
                    np.testing.assert_array_equal(session.read(buffer, timeout=30), len(where))

    def test_a_handler_of_ctrl_c_that_raises_nothing_is_called_behind_it(self):
        called = []
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, lambda *_: called.append(stream.is_clear)))
        with telegrad.connect(self.daemon.address) as connection, connection.session() as session:
            session.sync()
            stream, own = session._plain._stream, session._plain._stream.flush

            def flush():
                signal.raise_signal(signal.SIGINT)
                self.assertEqual(called, [])
                own()

            with unittest.mock.patch.object(stream, "flush", flush):
                session.alloc(16)
            self.assertEqual(called, [True])
            session.sync(timeout=30)

    def test_an_exception_of_a_handler_while_sending_ends_the_session(self):
        for where in ("flush", "submit"):
            with self.subTest(where), telegrad.connect(self.daemon.address) as connection:
                session = connection.session()
                session.sync()

                def interrupt(*_, **__):
                    raise KeyboardInterrupt

                setattr(session._plain._stream if where == "flush" else session._core, where, interrupt)
                with self.assertRaises(KeyboardInterrupt):
                    session.alloc(16)
                if where == "submit":
                    del session._core.submit
                with support.raises(self, Code.CANCELLED, "interrupted"):
                    session.sync(timeout=10)
                session._abort()

    def test_a_handler_that_uses_the_session_in_the_middle_of_an_operation_is_refused(self):
        with telegrad.connect(self.daemon.address) as connection, connection.session() as session:
            session.sync()
            flush, refused = session._plain._stream.flush, []

            def interrupted():
                with support.raises(self, Code.FAILED_PRECONDITION, "in the middle"):
                    session.alloc(8)
                refused.append(True)
                flush()

            session._plain._stream.flush = interrupted
            session.alloc(16)
            session._plain._stream.flush = flush
            self.assertEqual(refused, [True])
            session.sync(timeout=30)

    def test_an_interrupt_where_a_lock_is_taken_leaves_it_free(self):
        class Interrupted(threading.Condition):
            def __enter__(self):
                super().__enter__()
                raise KeyboardInterrupt

        with telegrad.connect(self.daemon.address) as connection:
            session = connection.session()
            session.sync()
            session._changed.__class__ = Interrupted
            session.free(session.alloc(16))
            session.sync_future().result(30)
            session.sync()
            session.close()

    def test_a_session_that_ends_while_a_wait_begins(self):
        class Ending:
            timeout = None
            looks = 0

            def lead(self, future, seconds):
                future.set_result(7)

            @property
            def _plain(self):
                self.looks += 1
                return self if self.looks == 1 else None

        self.assertEqual(SessionBase._wait(Ending(), Answer(), 1), 7)

    def test_who_is_done_meanwhile_needs_no_reader(self):
        class Done(Answer):
            looks = 0

            def done(self):
                self.looks += 1
                return self.looks > 1  # another thread ends it after the first look

        with telegrad.connect(self.daemon.address) as connection, connection.session() as session:
            session.sync()
            with session._changed:
                session._plain.attend(Done())
                self.assertEqual(session._plain._alone, 0)

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
