// Writes and reads the messages. What a worker sends is bounded and checked.
#include "devices/worker/protocol.h"

#include <utility>

#include "devices/worker/control.h"
#include "engine/base/byte_codec.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr size_t kMaxReplyText = 4096;

absl::Status NoSuchMessage(std::string_view what) {
  return absl::DataLossError(StrCat("a malformed ", what));
}

}  // namespace

std::string EncodeWorkerHello() {
  ByteWriter out;
  out.Word(kDeviceWorkerProtocol);
  return out.Take();
}

std::string EncodeWorkerSetup(const DeviceWorkerSetup& setup) {
  ByteWriter out;
  out.Word(setup.threads);
  out.Word(setup.launch_limit_ns);
  out.Word(setup.memory_bytes);
  return out.Take();
}

std::string EncodeWorkerOrder(uint64_t program, std::string_view name, std::string_view binary) {
  ByteWriter out;
  out.Word(program);
  out.Text(name);
  out.Text(binary);
  return out.Take();
}

std::string EncodeWorkerReply(uint64_t program, const absl::Status& status) {
  ByteWriter out;
  out.Word(program);
  out.Word(static_cast<int32_t>(status.code()));
  out.Text(ToStd(status.message()).substr(0, kMaxReplyText));
  return out.Take();
}

absl::Status CheckWorkerHello(std::string_view bytes) {
  ByteReader in(bytes);
  const auto protocol = in.Word<uint32_t>();
  if (!in.Done()) return NoSuchMessage("hello");
  if (protocol == kDeviceWorkerProtocol) return absl::OkStatus();
  return FailedPrecondition("it uses version ", protocol, " of the protocol, not ",
                            kDeviceWorkerProtocol);
}

absl::StatusOr<DeviceWorkerSetup> DecodeWorkerSetup(std::string_view bytes) {
  ByteReader in(bytes);
  DeviceWorkerSetup setup;
  setup.threads = in.Word<int32_t>();
  setup.launch_limit_ns = in.Word<int64_t>();
  setup.memory_bytes = in.Word<int64_t>();
  if (!in.Done()) return NoSuchMessage("setup");
  return setup;
}

absl::StatusOr<DeviceWorkerOrder> DecodeWorkerOrder(std::string_view bytes) {
  ByteReader in(bytes);
  DeviceWorkerOrder order;
  order.program = in.Word<uint64_t>();
  order.name = std::string(in.Text());
  order.binary = std::string(in.Text());
  if (!in.Done() || order.program == 0) return NoSuchMessage("order");
  return order;
}

absl::Status DecodeWorkerReply(std::string_view bytes, uint64_t program, absl::Status* said) {
  ByteReader in(bytes);
  const auto of = in.Word<uint64_t>();
  const auto code = in.Word<int32_t>();
  std::string text(in.Text());
  if (!in.Done() || of != program || text.size() > kMaxReplyText) return NoSuchMessage("reply");
  *said = WorkerStatus(code, std::move(text));
  return absl::OkStatus();
}

absl::Status WorkerStatus(int32_t code, std::string text) {
  if (code == 0) return absl::OkStatus();
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  const bool known = code > 0 && code <= static_cast<int32_t>(absl::StatusCode::kUnauthenticated);
  return absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      text);
}

}  // namespace telegrad
