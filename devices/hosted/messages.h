// What goes over the socket of a driver's process, each message one frame (engine/process/frame.h).
// The worker says its protocol; the daemon sends the descriptors of the control memory, of the
// staging memory and of an eventfd, and what is to be opened; the worker says what it has opened.
// From then on the daemon sends orders. Requests among them (kAlloc, kLoad, kEncode, kGiveBack,
// kSense) are answered, by their number and in any order; the others are not.
//
// The daemon chooses all ids. The worker trusts what it reads; the daemon checks it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/base/byte_codec.h"

namespace telegrad {

inline constexpr uint32_t kHostedProtocol = 3;
inline constexpr size_t kMaxHostedHello = 64;
inline constexpr size_t kMaxHostedOpened = 1 << 20;
inline constexpr size_t kMaxHostedOrder = size_t{512} << 20;
inline constexpr size_t kMaxHostedAnswer = 8 << 20;
inline constexpr size_t kMaxHostedDevices = 64;
// Commands of a submission whose times are told, as many as an answer has room for.
inline constexpr size_t kMaxHostedTimes = (kMaxHostedAnswer - 64) / 16;

// What a driver's process is to open.
struct HostedSetup {
  std::string driver = {};  // its row in devices/drivers.cc
  int64_t only = 0;         // the number of the device
  uint64_t generation = 1;
  std::string library = {};  // of the driver; see the options of each
  int64_t devices = -1;
  int64_t memory_limit = 0;
  std::string assembler = {};  // see NvOptions
  bool inexact = false;        // see OpenClOptions
  std::string hardware = {};   // see OneDevice
  int64_t pinned = 0;          // bytes of the staging memory that the driver may lock
};

struct HostedQueueFacts {
  std::string name;
  QueueCapability takes;
};

// What a device says of itself when it has been opened.
struct HostedFacts {
  std::string name;
  Target target;
  Rates rates;
  int64_t memory_limit = 0;
  bool senses = false;  // it has sensors
  std::vector<HostedQueueFacts> queues = {};
};

struct HostedOpened {
  absl::Status status = {};  // why nothing was opened
  std::vector<std::string> notes = {};
  std::optional<HostedFacts> device = {};  // none: it cannot be used
  int64_t shown = 0;                       // how many devices the driver has
  std::string hardware = {};               // see OneDevice
};

enum class HostedOrder : uint8_t {
  kAlloc,     // request, id, bytes
  kLoad,      // request, id, image
  kEncode,    // request, id, commands
  kGiveBack,  // request: idle memory, to the driver; whether all of it, at once
  kSense,     // request: the sensors
  kDrop,      // how many ids, and each, of any of these
  kRun,       // HostedRun
  kCopy,      // HostedCopy
  kCancel,    // queue, number
};

// Bytes of memory by its id, or of the staging memory.
inline constexpr uint64_t kStagingId = 0;
struct HostedView {
  uint64_t memory = kStagingId;
  int64_t offset = 0, length = 0;
};

// A point of one of the device's queues.
struct HostedPoint {
  uint32_t queue = 0;
  uint64_t number = 0;
};

enum class HostedTrace : uint8_t { kNone, kTime, kDetailed };

struct HostedRun {
  HostedPoint point = {};
  std::vector<HostedPoint> waits = {};
  uint64_t commands = 0;
  std::vector<HostedView> bindings = {};
  std::vector<uint64_t> scalars = {};
  HostedTrace trace = HostedTrace::kNone;
};

struct HostedCopy {
  HostedPoint point = {};
  std::vector<HostedPoint> waits = {};
  HostedView to, from;
};

// From the worker: an answer, the times of a submission's commands, or that the device is lost.
enum class HostedSaying : uint8_t { kAnswer, kTimes, kLost };

struct HostedAnswer {
  uint64_t request = 0;
  absl::Status status = {};
  int64_t footprint = 0;          // Device::memory_footprint, as it is now
  int64_t value = 0;              // bytes that were given back
  std::vector<double> told = {};  // of kSense: value and whether there is one, for each
};

struct HostedTimes {
  HostedPoint point;
  std::vector<std::pair<int64_t, int64_t>> times = {};  // SteadyNs
};

// One of the kinds up to `last`; the reader fails for others.
template <typename Kind>
Kind ReadKind(ByteReader* in, Kind last) {
  const auto kind = in->Word<uint8_t>();
  if (kind > static_cast<uint8_t>(last)) in->Fail();
  return static_cast<Kind>(in->ok() ? kind : 0);
}

std::string EncodeHostedHello();
absl::Status CheckHostedHello(std::string_view bytes);
std::string EncodeHostedSetup(const HostedSetup& setup);
absl::StatusOr<HostedSetup> DecodeHostedSetup(std::string_view bytes);
std::string EncodeHostedOpened(const HostedOpened& opened);
// DATA_LOSS for anything that does not describe devices. Names, numbers and texts are bounded.
absl::StatusOr<HostedOpened> DecodeHostedOpened(std::string_view bytes);

void WriteImage(const ProgramImage& image, ByteWriter* out);
ProgramImage ReadImage(ByteReader* in);
// The commands with the ids of their programs in place of these.
void WriteCommands(std::span<const Command> commands,
                   const std::function<uint64_t(const LoadedProgram&)>& id, ByteWriter* out);
std::vector<Command> ReadCommands(
    ByteReader* in, const std::function<std::shared_ptr<LoadedProgram>(uint64_t)>& program);

std::string EncodeHostedRun(const HostedRun& run);
HostedRun ReadHostedRun(ByteReader* in);
std::string EncodeHostedCopy(const HostedCopy& copy);
HostedCopy ReadHostedCopy(ByteReader* in);

std::string EncodeHostedAnswer(const HostedAnswer& answer);
std::string EncodeHostedTimes(const HostedTimes& times);
std::string EncodeHostedLoss(std::string_view why);
// These read what is behind the kind. They fail (ByteReader::Done) for what no worker writes.
HostedAnswer ReadHostedAnswer(ByteReader* in);
HostedTimes ReadHostedTimes(ByteReader* in);
std::string ReadHostedLoss(ByteReader* in);

// A status of a process that is not trusted; see WorkerStatus. `lost`: with the mark of a lost
// device.
absl::Status HostedStatus(int32_t code, std::string text, bool lost);

}  // namespace telegrad
