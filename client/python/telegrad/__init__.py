"""Telegrad's Python client: tensor graphs on a compute server.

    import numpy as np
    import telegrad

    graph = telegrad.Graph()
    x = graph.input("x", (4,))
    graph.output("y", x * 2 + 1)

    with telegrad.connect() as connection, connection.session() as session:
        program = session.put(graph)
        print(program(x=np.arange(4, dtype=np.float32))["y"])

`telegrad.aio` is the same for asyncio. docs/python.md is the guide.
"""

from telegrad import aio
from telegrad._messages import Device, HelloResponse, RunResult, RunTrace, TraceEvent
from telegrad._progress import Amount, progress
from telegrad._shared import SharedArray
from telegrad._transport import VERSION
from telegrad.connection import Connection, connect
from telegrad.credentials import TLS, token_from_file, token_from_local_socket
from telegrad.dtypes import DType, dtype
from telegrad.errors import Code, TelegradError
from telegrad.graph import Graph, Slot, Variable
from telegrad.program import Program
from telegrad.session import Buffer, Future, Session
from telegrad.tensor import Tensor, cat, stack

__version__ = VERSION

__all__ = [
    "Amount", "Buffer", "Code", "Connection", "DType", "Device", "Future", "Graph", "HelloResponse",
    "Program", "RunResult", "RunTrace", "Session", "SharedArray", "Slot", "TLS", "TelegradError", "Tensor",
    "TraceEvent", "Variable", "aio", "cat", "connect", "dtype", "progress", "stack", "token_from_file",
    "token_from_local_socket",
]
