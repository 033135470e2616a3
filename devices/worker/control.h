// What a daemon and a worker share besides buffers: a ring of records, each some commands, and
// timelines as words that both read and write. One page for the words, then the ring.
//
// The daemon writes a record and reaches the next point of `posted`; the worker runs records in
// order and reaches the points of `ended`. Both spin for a moment before they sleep.
//
// The worker trusts what it reads here. The daemon does not: it keeps its own count of what it
// posted, never reads back what it wrote, copies values of the worker before it uses them, and
// takes none of them for an address, an index or a length before it has checked it.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "devices/api/timeline_word.h"
#include "engine/types/tensor_map.h"

namespace telegrad {

inline constexpr uint32_t kDeviceWorkerProtocol = 4;

inline constexpr uint64_t kRingRecords = 16;
inline constexpr uint32_t kRecordSteps = 256;
inline constexpr uint32_t kRecordArguments = 4096;
inline constexpr uint32_t kRecordMessage = 496;

// A launch of the workgroups [begin, begin + amount) of a program; or, with the program 0, a copy
// of `amount` bytes from its second argument to its first.
struct RingStep {
  uint64_t program;
  int64_t begin;
  int64_t amount;
  uint32_t helpers;    // threads worth waking
  uint32_t arguments;  // words that it takes of the record's, in order
};

// What a word of a record's arguments is. A tensor map takes kMapWords: those of a HostTensorMap,
// of which the first is the place of the tensor.
enum class RingWord : uint8_t { kPlace, kScalar, kMap };
inline constexpr uint32_t kMapWords = sizeof(HostTensorMap) / sizeof(uint64_t);
static_assert(sizeof(HostTensorMap) % sizeof(uint64_t) == 0);
static_assert(std::is_trivially_copyable_v<HostTensorMap>);

struct RingTimes {
  int64_t begin_ns, end_ns;  // of the steady clock, which is the same in all processes
};

struct RingRecord {
  // Of the daemon:
  uint32_t steps;
  uint32_t traced;  // whether `times` is wanted
  RingStep step[kRecordSteps];
  uint64_t argument[kRecordArguments];  // bytes from the start of the worker's memory, or bits
  RingWord word[kRecordArguments];      // what each is; of a map's, what the first of them is
  // Of the worker:
  int32_t code;  // absl::StatusCode
  uint32_t message_bytes;
  char message[kRecordMessage];
  RingTimes times[kRecordSteps];
};

struct WorkerControl {
  // Of the daemon:
  alignas(64) TimelineWord posted;
  alignas(64) std::atomic<uint32_t> attend;  // a futex; changes with the next two
  std::atomic<uint32_t> ping;
  std::atomic<uint64_t> cancelled;  // records up to this one are to end early
  // Of the worker:
  alignas(64) TimelineWord ended;
  std::atomic<uint32_t> step;              // of the record that runs
  alignas(64) std::atomic<uint32_t> pong;  // the last ping that was heard
  alignas(4096) RingRecord record[kRingRecords];

  RingRecord& RecordOf(uint64_t number) { return record[number % kRingRecords]; }
};

}  // namespace telegrad
