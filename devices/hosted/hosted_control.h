// The memory that a daemon and the process of a driver share: how far each queue of the device has
// come, and how the submissions ended. Submissions themselves, and everything else that is asked of
// the process, are messages on its socket (messages.h).
//
// The worker reaches the points of `ended` in their order, each with an outcome in its place of the
// ring, and rings the daemon's eventfd if that sleeps. The daemon keeps its own count of what it
// has sent and of what it has seen, copies an outcome before it uses it, and takes nothing here for
// a length or an index before it has checked it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "devices/api/timeline_word.h"

namespace telegrad {

inline constexpr size_t kHostedQueues = 16;        // the most that a device has
inline constexpr uint64_t kHostedFlights = 1024;   // submissions of a queue on their way
inline constexpr uint32_t kHostedMessage = 484;    // bytes of an outcome's text
inline constexpr int64_t kStagingBlock = 1 << 20;  // bytes that one copy takes at most
inline constexpr int kStagingBlocks = 8;           // of a queue

struct HostedOutcome {
  int32_t code;  // absl::StatusCode
  uint32_t message_bytes;
  uint32_t lost;      // whether it has the mark of device_lost.h
  uint32_t traced;    // whether a message with the times of its commands has been sent before
  int64_t device_ns;  // that a device told of a submission whose trace has no details
  std::array<char, kHostedMessage> message;
};

struct HostedQueueWords {
  TimelineWord ended;
  std::array<HostedOutcome, kHostedFlights> outcomes;

  HostedOutcome& OutcomeOf(uint64_t number) { return outcomes[number % kHostedFlights]; }
};

struct HostedControl {
  // Of the daemon:
  alignas(64) std::atomic<uint32_t> asleep;  // it waits on the eventfd
  alignas(64) std::atomic<uint32_t> ping;    // a futex
  // Of the worker:
  alignas(64) std::atomic<uint32_t> pong;  // the last ping that was heard
  alignas(4096) std::array<HostedQueueWords, kHostedQueues> queues;
};

}  // namespace telegrad
