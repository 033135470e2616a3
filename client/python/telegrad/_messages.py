"""The messages of proto/telegrad/v1 that this package sends and receives.

Field names, numbers and types are those of the .proto files, which also say what they mean; a test
compares all of them. A name that is a word of Python's has "_" after it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from telegrad._wire import (
    Bytes,
    Message,
    boolean,
    data,
    double,
    enumeration,
    fixed32,
    fixed64,
    int64,
    payload,
    repeated,
    sint64,
    string,
    submessage,
    uint32,
    uint64,
)


class FileMode(enum.IntEnum):
    FILE_MODE_READ = 0
    FILE_MODE_WRITE = 1
    FILE_MODE_CREATE = 2


class Compression(enum.IntEnum):
    COMPRESSION_NONE = 0
    COMPRESSION_LZ4 = 1
    COMPRESSION_ZSTD = 2


class Checksum(enum.IntEnum):
    CHECKSUM_CRC32C = 0
    CHECKSUM_CRC32 = 1
    CHECKSUM_NONE = 2


class Role(enum.IntEnum):
    INPUT = 0
    OUTPUT = 1
    WEIGHT = 2


class Priority(enum.IntEnum):
    """Of a run among those of its tenant that wait for a device."""

    NORMAL = 0
    LOW = 1
    HIGH = 2


class Kind(enum.IntEnum):
    LAUNCH = 0
    COPY = 1


# session.proto


@dataclass
class VersionRange(Message):
    min: int = uint32(1)
    max: int = uint32(2)


@dataclass
class HelloRequest(Message):
    protocol: VersionRange | None = submessage(1, VersionRange)
    graph_form: VersionRange | None = submessage(2, VersionRange)
    client: str = string(3)


@dataclass
class HelloResponse(Message):
    protocol: int = uint32(1)
    graph_form: int = uint32(2)
    server: str = string(3)
    max_message_bytes: int = uint64(4)
    chunk_bytes: int = uint64(5)
    epoch: int = fixed64(6)
    data_address: str = string(7)
    compressions: list[int] = repeated(8, "enum", Compression)
    local_socket: str = string(9)
    tenant: str = string(10)
    bulk_address: str = string(11)
    binds_parts: bool = boolean(12)
    copies: bool = boolean(13)
    peer_key: bytes = data(14)
    peers: list[str] = repeated(15, "string")
    searches: bool = boolean(16)
    gathers: bool = boolean(17)
    operation_sockets: bool = boolean(18)


@dataclass
class ListDevicesRequest(Message):
    pass


@dataclass
class OperationRate(Message):
    kind: str = string(1)
    per_second: float = double(2)


@dataclass
class Device(Message):
    name: str = string(1)
    target: str = string(2)
    memory_limit: int = uint64(3)
    memory_used: int = uint64(4)
    healthy: bool = boolean(5)
    health: str = string(6)
    threads: int = uint32(7)
    kind: str = string(8)
    remote: bool = boolean(9)
    round_trip_ns: int = uint64(10)
    bytes_per_second: float = double(11)
    generation: int = uint64(12)
    memory_generation: int = uint64(13)
    rates: list[OperationRate] = repeated(14, OperationRate)
    of_tenant: bool = boolean(15)


@dataclass
class ListDevicesResponse(Message):
    devices: list[Device] = repeated(1, Device)
    notes: list[str] = repeated(2, "string")


@dataclass
class StatsRequest(Message):
    pass


@dataclass
class StatsEntry(Message):
    key: str = string(1)
    value: float = double(2)


@dataclass
class StatsResponse(Message):
    values: list[StatsEntry] = repeated(1, StatsEntry)


@dataclass
class KeepAliveRequest(Message):
    token: bytes = data(1)
    epoch: int = fixed64(2)


@dataclass
class KeepAliveResponse(Message):
    lease_ms: int = uint32(1)
    last_op_id: int = uint64(2)
    kernels_compiled: int = uint64(3)
    kernels_to_compile: int = uint64(4)


@dataclass
class CloseRequest(Message):
    token: bytes = data(1)
    epoch: int = fixed64(2)


@dataclass
class CloseResponse(Message):
    pass


# data.proto


@dataclass
class Alloc(Message):
    handle: int = uint64(1)
    bytes: int = uint64(2)
    device: str = string(3)
    path: str = string(4)
    file_offset: int = uint64(5)
    mode: int = enumeration(6, FileMode)


@dataclass
class Free(Message):
    handles: list[int] = repeated(1, "uint64")


@dataclass
class Write(Message):
    handle: int = uint64(1)
    offset: int = uint64(2)
    transfer: int = uint64(3)
    bytes: int = uint64(4)


@dataclass
class Copy(Message):
    from_: int = uint64(1)
    from_offset: int = uint64(2)
    to: int = uint64(3)
    to_offset: int = uint64(4)
    bytes: int = uint64(5)


@dataclass
class Send(Message):
    handle: int = uint64(1)
    offset: int = uint64(2)
    bytes: int = uint64(3)
    address: str = string(4)
    transfer: int = uint64(5)
    identity: Bytes = data(6)
    secret: Bytes = data(7)
    tls: bool = boolean(8)


@dataclass
class Receive(Message):
    handle: int = uint64(1)
    offset: int = uint64(2)
    bytes: int = uint64(3)
    transfer: int = uint64(4)


@dataclass
class Read(Message):
    handle: int = uint64(1)
    offset: int = uint64(2)
    bytes: int = uint64(3)
    transfer: int = uint64(4)


@dataclass
class ReadChunk(Message):
    offset: int = uint64(1)
    last: bool = boolean(2)


@dataclass
class AdmitBulkRequest(Message):
    token: bytes = data(1)
    epoch: int = fixed64(2)
    peer_key: bytes = data(3)
    bytes: int = uint64(4)
    lifetime_ms: int = uint32(5)
    request: int = fixed64(6)
    operations: bool = boolean(7)


@dataclass
class AdmitBulkResponse(Message):
    identity: bytes = data(1)
    secret: bytes = data(2)
    tls: bool = boolean(3)
    lifetime_ms: int = uint32(4)
    certificate_sha256: bytes = data(5)
    transfer: int = uint64(6)


@dataclass
class Attach(Message):
    token: bytes = data(1)
    epoch: int = fixed64(2)
    compressions: list[int] = repeated(3, "enum", Compression)
    checksum: int = enumeration(4, Checksum)


@dataclass
class ByteRange(Message):
    offset: int = uint64(1)
    bytes: int = uint64(2)


@dataclass
class Attached(Message):
    credit: int = uint64(1)
    chunk_bytes: int = uint64(2)
    proof: bytes = data(3)
    checksum: int = enumeration(4, Checksum)
    missing: list[ByteRange] = repeated(5, ByteRange)


@dataclass
class Credit(Message):
    bytes: int = uint64(1)


@dataclass
class Chunk(Message):
    transfer: int = uint64(1)
    offset: int = uint64(2)
    bytes: int = uint32(3)
    checksum: int = fixed32(4)
    compression: int = enumeration(5, Compression)


@dataclass
class Pull(Message):
    transfer: int = uint64(1)
    offset: int = uint64(2)
    bytes: int = uint64(3)
    compression: int = enumeration(4, Compression)


@dataclass
class Release(Message):
    transfer: int = uint64(1)


@dataclass
class Refused(Message):
    transfer: int = uint64(1)
    offset: int = uint64(2)
    code: int = uint32(3)
    message: str = string(4)
    bytes: int = uint32(5)


@dataclass
class Ended(Message):
    code: int = uint32(1)
    message: str = string(2)


@dataclass
class TransferRequest(Message):
    attach: Attach | None = submessage(1, Attach, "what")
    upload: Chunk | None = submessage(2, Chunk, "what")
    pull: Pull | None = submessage(3, Pull, "what")
    release: Release | None = submessage(4, Release, "what")
    data: Bytes = payload(15)


@dataclass
class TransferResponse(Message):
    attached: Attached | None = submessage(1, Attached, "what")
    credit: Credit | None = submessage(2, Credit, "what")
    download: Chunk | None = submessage(3, Chunk, "what")
    refused: Refused | None = submessage(4, Refused, "what")
    ended: Ended | None = submessage(5, Ended, "what")
    data: Bytes = payload(15)


# compute.proto


@dataclass
class Status(Message):
    code: int = uint32(1)
    message: str = string(2)
    retry_after_ms: int = uint64(3)  # 0: the server does not say
    device_lost: bool = boolean(4)


@dataclass
class Open(Message):
    protocol: int = uint32(1)
    client: str = string(2)
    resumable: bool = boolean(3)
    token: bytes = data(4)
    epoch: int = fixed64(5)
    lease_ms: int = uint32(6)
    gathers: bool = boolean(7)


@dataclass
class OpenResult(Message):
    session: int = uint64(1)
    token: bytes = data(2)
    epoch: int = fixed64(3)
    lease_ms: int = uint32(4)
    grace_ms: int = uint32(5)
    last_op_id: int = uint64(6)


@dataclass
class Cancel(Message):
    first: int = uint64(1)
    last: int = uint64(2)


@dataclass
class Dims(Message):
    dims: list[int] = repeated(1, "int64")


@dataclass
class ShapeEntry(Message):
    key: str = string(1)
    value: Dims | None = submessage(2, Dims)


@dataclass
class DimEntry(Message):
    key: str = string(1)
    value: int = int64(2)


class ModelElementKind(enum.IntEnum):
    TENSOR = 0
    STRINGS = 1
    NOTHING = 2


@dataclass
class ModelElement(Message):
    kind: int = enumeration(1, ModelElementKind)
    slot: int = uint32(2)
    shape_slot: int = uint32(3)
    dtype: int = uint32(4)
    dims: list[int] = repeated(5, "int64")
    data: bytes = data(6)
    strings: list[bytes] = repeated(7, "bytes")


@dataclass
class ModelValue(Message):
    name: str = string(1)
    sequence: bool = boolean(2)
    elements: list[ModelElement] = repeated(3, ModelElement)


@dataclass
class ValueEntry(Message):
    key: str = string(1)
    value: ModelValue | None = submessage(2, ModelValue)


@dataclass
class Import(Message):
    format: str = string(1)
    handle: int = uint64(2)
    bytes: int = uint64(3)
    first_handle: int = uint64(4)
    device: str = string(5)
    input_shapes: list[ShapeEntry] = repeated(6, ShapeEntry)
    dims: list[DimEntry] = repeated(7, DimEntry)
    compile: bool = boolean(8)
    values: list[ValueEntry] = repeated(9, ValueEntry)


@dataclass
class ImportedSlot(Message):
    role: int = enumeration(1, Role)
    name: str = string(2)
    model_names: list[str] = repeated(3, "string")
    dtype: int = uint32(4)
    dims: list[int] = repeated(5, "int64")
    bytes: int = uint64(6)
    handle: int = uint64(7)


@dataclass
class ImportResult(Message):
    hash: bytes = data(1)
    slots: list[ImportedSlot] = repeated(2, ImportedSlot)
    inputs: list[ModelValue] = repeated(3, ModelValue)
    outputs: list[ModelValue] = repeated(4, ModelValue)
    guards: list[str] = repeated(5, "string")


@dataclass
class Variable(Message):
    id: int = int64(1)
    value: int = sint64(2)


@dataclass
class RunCost(Message):
    flops: float = double(1)
    bytes: float = double(2)
    seconds: float = double(3)
    launch_seconds: float = double(4)
    temporary_bytes: int = uint64(5)


@dataclass
class VariableRange(Message):
    id: int = int64(1)
    min: int = sint64(2)
    max: int = sint64(3)
    multiple: int = sint64(4)


@dataclass
class Has(Message):
    hash: bytes = data(1)
    compile: bool = boolean(2)
    devices: list[str] = repeated(3, "string")
    variables: list[Variable] = repeated(4, Variable)


@dataclass
class HasResult(Message):
    has: bool = boolean(1)
    cost: RunCost | None = submessage(2, RunCost)
    ranges: list[VariableRange] = repeated(3, VariableRange)
    least_share: float = double(4)


@dataclass
class Put(Message):
    compile: bool = boolean(1)
    devices: list[str] = repeated(2, "string")


@dataclass
class PutResult(Message):
    hash: bytes = data(1)
    cost: RunCost | None = submessage(2, RunCost)


@dataclass
class Run(Message):
    hash: bytes = data(1)
    handles: list[int] = repeated(2, "uint64")
    quiet: bool = boolean(3)
    variables: list[Variable] = repeated(4, Variable)
    devices: list[str] = repeated(5, "string")
    trace: bool = boolean(6)
    timeout_ms: int = uint32(7)
    offsets: list[int] = repeated(8, "uint64")
    priority: int = enumeration(9, Priority)
    search: bool = boolean(10)


@dataclass
class TraceEvent(Message):
    kind: int = enumeration(1, Kind)
    name: str = string(2)
    queue: str = string(3)
    begin_ns: int = sint64(4)
    duration_ns: int = uint64(5)
    flops: float = double(6)
    bytes: float = double(7)
    reasons: list[str] = repeated(8, "string")


@dataclass
class RunTrace(Message):
    events: list[TraceEvent] = repeated(1, TraceEvent)
    dropped: int = uint64(2)
    end_ns: int = uint64(3)


@dataclass
class RunResult(Message):
    cached: bool = boolean(1)
    kernels: int = uint32(2)
    device_ns: int = uint64(3)
    compile_ns: int = uint64(4)
    trace: RunTrace | None = submessage(5, RunTrace)


@dataclass
class Sync(Message):
    pass


@dataclass
class ExecuteRequest(Message):
    op_id: int = uint64(1)
    open: Open | None = submessage(2, Open, "op")
    alloc: Alloc | None = submessage(3, Alloc, "op")
    free: Free | None = submessage(4, Free, "op")
    write: Write | None = submessage(5, Write, "op")
    read: Read | None = submessage(6, Read, "op")
    has: Has | None = submessage(7, Has, "op")
    put: Put | None = submessage(8, Put, "op")
    run: Run | None = submessage(9, Run, "op")
    sync: Sync | None = submessage(10, Sync, "op")
    cancel: Cancel | None = submessage(11, Cancel, "op")
    import_: Import | None = submessage(12, Import, "op")
    copy: Copy | None = submessage(13, Copy, "op")
    send: Send | None = submessage(17, Send, "op")
    receive: Receive | None = submessage(18, Receive, "op")
    acknowledged: int = uint64(14)
    data: Bytes = payload(15)
    traceparent: str = string(16)
    gathered: list[bytes] = repeated(19, "bytes")


@dataclass
class ExecuteResponse(Message):
    op_id: int = uint64(1)
    status: Status | None = submessage(2, Status)
    read: ReadChunk | None = submessage(3, ReadChunk, "result")
    has: HasResult | None = submessage(4, HasResult, "result")
    put: PutResult | None = submessage(5, PutResult, "result")
    run: RunResult | None = submessage(6, RunResult, "result")
    open: OpenResult | None = submessage(7, OpenResult, "result")
    import_: ImportResult | None = submessage(8, ImportResult, "result")
    data: Bytes = payload(15)
    gathered: list[bytes] = repeated(16, "bytes")


# graph.proto


@dataclass
class Node(Message):
    op: int = uint32(1)
    dtype: int = uint32(2)
    src: list[int] = repeated(3, "uint32")
    arg: list[int] = repeated(4, "sint64")
    real: float = double(5)


@dataclass
class Graph(Message):
    form: int = uint32(1)
    nodes: list[Node] = repeated(2, Node)
    root: int = uint32(3)


# Methods, by what they take and give.
METHODS: dict[str, tuple[type[Message], type[Message]]] = {
    "/telegrad.v1.Session/Hello": (HelloRequest, HelloResponse),
    "/telegrad.v1.Session/ListDevices": (ListDevicesRequest, ListDevicesResponse),
    "/telegrad.v1.Session/Stats": (StatsRequest, StatsResponse),
    "/telegrad.v1.Session/KeepAlive": (KeepAliveRequest, KeepAliveResponse),
    "/telegrad.v1.Session/Close": (CloseRequest, CloseResponse),
    "/telegrad.v1.Data/Transfer": (TransferRequest, TransferResponse),
    "/telegrad.v1.Data/AdmitBulk": (AdmitBulkRequest, AdmitBulkResponse),
    "/telegrad.v1.Compute/Execute": (ExecuteRequest, ExecuteResponse),
}
