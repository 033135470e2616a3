// Writes and reads the messages. What a worker sends is bounded and checked; a status of it has a
// code that there is, and text without control characters.
#include "devices/hosted/messages.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "devices/hosted/hosted_control.h"
#include "devices/worker/protocol.h"
#include "engine/base/device_lost.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr size_t kMaxName = 256, kMaxText = 16 << 10, kMaxNotes = 256;

std::string ReadText(ByteReader* in, size_t most) {
  std::string text(in->Text());
  if (text.size() > most) in->Fail();
  if (!in->ok()) return "";
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return text;
}

void WriteStatus(const absl::Status& status, ByteWriter* out) {
  out->Word(static_cast<int32_t>(status.code()));
  out->Word(static_cast<uint8_t>(IsDeviceLost(status)));
  out->Text(ToStd(status.message()).substr(0, kMaxText));
}

absl::Status ReadStatus(ByteReader* in) {
  const auto code = in->Word<int32_t>();
  const bool lost = in->Bool();
  return HostedStatus(code, ReadText(in, kMaxText), lost);
}

double ReadRate(ByteReader* in) {
  const auto rate = in->Word<double>();
  if (!std::isfinite(rate) || rate < 0) in->Fail();
  return rate;
}

void WriteTakes(const QueueCapability& takes, ByteWriter* out) {
  out->Word(static_cast<uint8_t>((takes.compute ? 1 : 0) + (takes.copy ? 2 : 0)));
}
QueueCapability ReadTakes(ByteReader* in) {
  const auto bits = in->Word<uint8_t>();
  if (bits == 0 || bits > 3) in->Fail();
  return {.compute = (bits & 1) != 0, .copy = (bits & 2) != 0};
}

void WriteFacts(const HostedFacts& facts, ByteWriter* out) {
  out->Text(facts.name);
  out->Text(facts.target.Key());
  for (const ArithmeticInfo& row : kArithmetics) out->Word(facts.rates.flops[row.arithmetic]);
  out->Word(facts.rates.bytes);
  out->Word(facts.rates.iterations);
  out->Word(facts.memory_limit);
  out->Word(static_cast<uint8_t>(facts.senses));
  out->Word(static_cast<uint64_t>(facts.queues.size()));
  for (const HostedQueueFacts& queue : facts.queues) {
    out->Text(queue.name);
    WriteTakes(queue.takes, out);
  }
}

HostedFacts ReadFacts(ByteReader* in) {
  HostedFacts facts;
  facts.name = ReadText(in, kMaxName);
  auto target = Target::FromKey(in->Text());
  if (target) {
    facts.target = *std::move(target);
  } else {
    in->Fail();
  }
  for (const ArithmeticInfo& row : kArithmetics) facts.rates.flops[row.arithmetic] = ReadRate(in);
  facts.rates.bytes = ReadRate(in);
  facts.rates.iterations = in->Word<int64_t>();
  facts.memory_limit = in->Word<int64_t>();
  if (facts.rates.iterations < 1 || facts.memory_limit < 0) in->Fail();
  facts.senses = in->Bool();
  const size_t queues = in->Count();
  for (size_t i = 0; i < queues && in->ok(); ++i) {
    HostedQueueFacts& queue = facts.queues.emplace_back();
    queue.name = ReadText(in, kMaxName);
    queue.takes = ReadTakes(in);
  }
  return facts;
}

void WritePart(const BoundPart& part, ByteWriter* out) {
  out->Word(part.binding);
  out->Word(part.offset);
}
BoundPart ReadPart(ByteReader* in) {
  BoundPart part;
  part.binding = in->Word<int32_t>();
  part.offset = in->Word<int64_t>();
  return part;
}

enum class ArgumentForm : uint8_t { kBuffer, kMap, k32, k64, k32At, k64At };

void WriteArgument(const LaunchArgument& argument, ByteWriter* out) {
  using enum ArgumentForm;
  if (argument.is_bound()) {
    out->Word(argument.map() != nullptr ? kMap : kBuffer);
    WritePart(argument.part(), out);
    out->Word(argument.access());
    if (const TensorMap* map = argument.map()) {
      out->Text({reinterpret_cast<const char*>(map), sizeof(*map)});
    }
    return;
  }
  const bool wide = argument.kind() == ParameterKind::kScalar64;
  if (argument.is_constant()) {
    out->Word(wide ? k64 : k32);
    out->Word(argument.constant());
  } else {
    out->Word(wide ? k64At : k32At);
    out->Word(argument.scalar());
  }
}

LaunchArgument ReadArgument(ByteReader* in) {
  const auto form = ReadKind(in, ArgumentForm::k64At);
  switch (form) {
    case ArgumentForm::kBuffer:
    case ArgumentForm::kMap: {
      const BoundPart part = ReadPart(in);
      const auto access = ReadKind(in, BufferAccess::kReadWrite);
      if (form == ArgumentForm::kBuffer) return {part.binding, part.offset, access};
      const std::string_view bytes = in->Text();
      TensorMap map;
      if (bytes.size() != sizeof(map)) {
        in->Fail();
      } else {
        std::memcpy(&map, bytes.data(), sizeof(map));
      }
      return LaunchArgument::Map(map, part.binding, part.offset, access);
    }
    case ArgumentForm::k32:
      return LaunchArgument::Scalar32(static_cast<uint32_t>(in->Word<uint64_t>()));
    case ArgumentForm::k64:
      return LaunchArgument::Scalar64(in->Word<uint64_t>());
    case ArgumentForm::k32At:
      return LaunchArgument::Scalar32At(in->Word<int32_t>());
    case ArgumentForm::k64At:
      return LaunchArgument::Scalar64At(in->Word<int32_t>());
  }
  in->Fail();
  return LaunchArgument::Scalar32(0);
}

void WriteGrid(const GridSize& grid, ByteWriter* out) {
  for (const int64_t size : {grid.x, grid.y, grid.z}) out->Word(size);
}
GridSize ReadGrid(ByteReader* in) {
  GridSize grid;
  for (int64_t* size : {&grid.x, &grid.y, &grid.z}) *size = in->Word<int64_t>();
  return grid;
}

void WriteView(const HostedView& view, ByteWriter* out) {
  out->Word(view.memory);
  out->Word(view.offset);
  out->Word(view.length);
}
HostedView ReadView(ByteReader* in) {
  HostedView view;
  view.memory = in->Word<uint64_t>();
  view.offset = in->Word<int64_t>();
  view.length = in->Word<int64_t>();
  return view;
}

void WritePoint(const HostedPoint& point, ByteWriter* out) {
  out->Word(point.queue);
  out->Word(point.number);
}
HostedPoint ReadPoint(ByteReader* in) {
  HostedPoint point;
  point.queue = in->Word<uint32_t>();
  point.number = in->Word<uint64_t>();
  if (point.queue >= kHostedQueues) in->Fail();
  return point;
}
void WritePoints(std::span<const HostedPoint> points, ByteWriter* out) {
  out->Word(static_cast<uint64_t>(points.size()));
  for (const HostedPoint& point : points) WritePoint(point, out);
}
std::vector<HostedPoint> ReadPoints(ByteReader* in) {
  std::vector<HostedPoint> points(in->Count());
  for (HostedPoint& point : points) point = ReadPoint(in);
  return points;
}

}  // namespace

std::string EncodeHostedHello() {
  ByteWriter out;
  out.Word(kHostedProtocol);
  return out.Take();
}

absl::Status CheckHostedHello(std::string_view bytes) {
  ByteReader in(bytes);
  const auto protocol = in.Word<uint32_t>();
  if (!in.Done()) return absl::DataLossError("a malformed hello");
  if (protocol == kHostedProtocol) return absl::OkStatus();
  return FailedPrecondition("it uses version ", protocol, " of the protocol, not ",
                            kHostedProtocol);
}

std::string EncodeHostedSetup(const HostedSetup& setup) {
  ByteWriter out;
  out.Text(setup.driver);
  out.Word(setup.only);
  out.Word(setup.generation);
  out.Text(setup.library);
  out.Word(setup.devices);
  out.Word(setup.memory_limit);
  out.Text(setup.assembler);
  out.Word(static_cast<uint8_t>(setup.inexact));
  out.Text(setup.hardware);
  out.Word(setup.pinned);
  return out.Take();
}

absl::StatusOr<HostedSetup> DecodeHostedSetup(std::string_view bytes) {
  ByteReader in(bytes);
  HostedSetup setup;
  setup.driver = std::string(in.Text());
  setup.only = in.Word<int64_t>();
  setup.generation = in.Word<uint64_t>();
  setup.library = std::string(in.Text());
  setup.devices = in.Word<int64_t>();
  setup.memory_limit = in.Word<int64_t>();
  setup.assembler = std::string(in.Text());
  setup.inexact = in.Bool();
  setup.hardware = std::string(in.Text());
  setup.pinned = in.Word<int64_t>();
  if (!in.Done()) return absl::DataLossError("a malformed setup");
  return setup;
}

std::string EncodeHostedOpened(const HostedOpened& opened) {
  ByteWriter out;
  WriteStatus(opened.status, &out);
  const size_t notes = std::min(opened.notes.size(), kMaxNotes);
  out.Word(static_cast<uint64_t>(notes));
  for (size_t i = 0; i < notes; ++i) out.Text(opened.notes[i].substr(0, kMaxText));
  out.Word(opened.shown);
  out.Text(opened.hardware);
  out.Word(static_cast<uint8_t>(opened.device.has_value()));
  if (opened.device) WriteFacts(*opened.device, &out);
  return out.Take();
}

absl::StatusOr<HostedOpened> DecodeHostedOpened(std::string_view bytes) {
  ByteReader in(bytes);
  HostedOpened opened;
  opened.status = ReadStatus(&in);
  const size_t notes = in.Count();
  if (notes > kMaxNotes) in.Fail();
  for (size_t i = 0; i < notes && in.ok(); ++i) opened.notes.push_back(ReadText(&in, kMaxText));
  opened.shown = in.Word<int64_t>();
  if (opened.shown < 0) in.Fail();
  opened.hardware = ReadText(&in, kMaxText);
  if (in.Bool()) opened.device = ReadFacts(&in);
  if (!in.Done()) return absl::DataLossError("a malformed description of its devices");
  return opened;
}

void WriteImage(const ProgramImage& image, ByteWriter* out) {
  out->Text(image.name);
  out->Text(image.binary);
  Write(image.signature, out);
  out->Text(image.hash);
}

ProgramImage ReadImage(ByteReader* in) {
  ProgramImage image;
  image.name = std::string(in->Text());
  image.binary = std::string(in->Text());
  image.signature = ReadSignature(in);
  image.hash = std::string(in->Text());
  return image;
}

void WriteCommands(std::span<const Command> commands,
                   const std::function<uint64_t(const LoadedProgram&)>& id, ByteWriter* out) {
  out->Word(static_cast<uint64_t>(commands.size()));
  for (const Command& command : commands) {
    out->Word(command.kind);
    if (command.kind == CommandKind::kCopy) {
      WritePart(command.copy.to, out);
      WritePart(command.copy.from, out);
      out->Word(command.copy.length);
      continue;
    }
    const Launch& launch = command.launch;
    out->Word(id(*launch.program));
    out->Word(static_cast<uint64_t>(launch.arguments.size()));
    for (const LaunchArgument& argument : launch.arguments) WriteArgument(argument, out);
    out->Word(launch.begin);
    WriteGrid(launch.grid, out);
    WriteGrid(launch.group, out);
    out->Word(launch.local_bytes);
    out->Word(launch.flops);
    out->Word(launch.bytes);
    out->Text(launch.name);
    out->Word(launch.groups);
    out->Word(launch.share);
  }
}

std::vector<Command> ReadCommands(
    ByteReader* in, const std::function<std::shared_ptr<LoadedProgram>(uint64_t)>& program) {
  std::vector<Command> commands(in->Count());
  for (Command& command : commands) {
    command.kind = ReadKind(in, CommandKind::kCopy);
    if (command.kind == CommandKind::kCopy) {
      command.copy.to = ReadPart(in);
      command.copy.from = ReadPart(in);
      command.copy.length = in->Word<int64_t>();
      continue;
    }
    Launch& launch = command.launch;
    launch.program = program(in->Word<uint64_t>());
    const size_t arguments = in->Count();
    for (size_t i = 0; i < arguments && in->ok(); ++i) {
      launch.arguments.push_back(ReadArgument(in));
    }
    launch.begin = in->Word<int64_t>();
    launch.grid = ReadGrid(in);
    launch.group = ReadGrid(in);
    launch.local_bytes = in->Word<int64_t>();
    launch.flops = in->Word<double>();
    launch.bytes = in->Word<double>();
    launch.name = std::string(in->Text());
    launch.groups = in->Word<int32_t>();
    launch.share = in->Word<int32_t>();
  }
  return commands;
}

std::string EncodeHostedRun(const HostedRun& run) {
  ByteWriter out;
  out.Word(HostedOrder::kRun);
  WritePoint(run.point, &out);
  WritePoints(run.waits, &out);
  out.Word(run.commands);
  out.Word(static_cast<uint64_t>(run.bindings.size()));
  for (const HostedView& view : run.bindings) WriteView(view, &out);
  out.Word(static_cast<uint64_t>(run.scalars.size()));
  for (const uint64_t scalar : run.scalars) out.Word(scalar);
  out.Word(run.trace);
  return out.Take();
}

HostedRun ReadHostedRun(ByteReader* in) {
  HostedRun run;
  run.point = ReadPoint(in);
  run.waits = ReadPoints(in);
  run.commands = in->Word<uint64_t>();
  run.bindings.resize(in->Count());
  for (HostedView& view : run.bindings) view = ReadView(in);
  run.scalars.resize(in->Count());
  for (uint64_t& scalar : run.scalars) scalar = in->Word<uint64_t>();
  run.trace = ReadKind(in, HostedTrace::kDetailed);
  return run;
}

std::string EncodeHostedCopy(const HostedCopy& copy) {
  ByteWriter out;
  out.Word(HostedOrder::kCopy);
  WritePoint(copy.point, &out);
  WritePoints(copy.waits, &out);
  WriteView(copy.to, &out);
  WriteView(copy.from, &out);
  return out.Take();
}

HostedCopy ReadHostedCopy(ByteReader* in) {
  HostedCopy copy;
  copy.point = ReadPoint(in);
  copy.waits = ReadPoints(in);
  copy.to = ReadView(in);
  copy.from = ReadView(in);
  return copy;
}

std::string EncodeHostedAnswer(const HostedAnswer& answer) {
  ByteWriter out;
  out.Word(HostedSaying::kAnswer);
  out.Word(answer.request);
  WriteStatus(answer.status, &out);
  out.Word(answer.footprint);
  out.Word(answer.value);
  out.Word(static_cast<uint64_t>(answer.told.size()));
  for (const double value : answer.told) out.Word(value);
  return out.Take();
}

HostedAnswer ReadHostedAnswer(ByteReader* in) {
  HostedAnswer answer;
  answer.request = in->Word<uint64_t>();
  answer.status = ReadStatus(in);
  answer.footprint = in->Word<int64_t>();
  answer.value = in->Word<int64_t>();
  if (answer.footprint < 0 || answer.value < 0) in->Fail();
  const size_t told = in->Count();
  for (size_t i = 0; i < told && in->ok(); ++i) answer.told.push_back(in->Word<double>());
  return answer;
}

std::string EncodeHostedTimes(const HostedTimes& times) {
  ByteWriter out;
  out.Word(HostedSaying::kTimes);
  WritePoint(times.point, &out);
  out.Word(static_cast<uint64_t>(times.times.size()));
  for (const auto& [begin, end] : times.times) {
    out.Word(begin);
    out.Word(end);
  }
  return out.Take();
}

HostedTimes ReadHostedTimes(ByteReader* in) {
  HostedTimes times;
  times.point = ReadPoint(in);
  const size_t count = in->Count();
  for (size_t i = 0; i < count && in->ok(); ++i) {
    const auto begin = in->Word<int64_t>();
    times.times.emplace_back(begin, in->Word<int64_t>());
  }
  return times;
}

std::string EncodeHostedLoss(std::string_view why) {
  ByteWriter out;
  out.Word(HostedSaying::kLost);
  out.Text(why.substr(0, kMaxText));
  return out.Take();
}

std::string ReadHostedLoss(ByteReader* in) { return ReadText(in, kMaxText); }

absl::Status HostedStatus(int32_t code, std::string text, bool lost) {
  absl::Status status = WorkerStatus(code, std::move(text));
  return lost && !status.ok() ? DeviceLostError(ToStd(status.message())) : status;
}

}  // namespace telegrad
