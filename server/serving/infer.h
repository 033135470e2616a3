// An inference request and its result, free of any wire format.
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
#include "devices/api/cancellation.h"
#include "engine/base/account.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"
#include "engine/types/dtype.h"
#include "server/admin/tracer.h"
#include "server/serving/device_regions.h"
#include "server/serving/shared_regions.h"

namespace telegrad {

// What a caller's id for a request may have of bytes: the answer repeats it, for which nobody pays.
inline constexpr size_t kMostRequestIdBytes = 4096;

// INVALID_ARGUMENT for a longer one.
inline absl::Status CheckRequestId(std::string_view id) {
  if (id.size() <= kMostRequestIdBytes) return absl::OkStatus();
  return InvalidArgument("the request's id has ", id.size(), " bytes; ", kMostRequestIdBytes,
                         " are allowed");
}

struct InferInput {
  std::string name;
  std::string datatype;  // as the client wrote it
  Shape shape;
  std::vector<std::span<const uint8_t>> pieces;  // its bytes in order, row-major, little-endian
  int64_t bytes = 0;                             // in all pieces
  std::optional<RegionPart> region = {};         // where its bytes are, instead of pieces
  std::optional<DevicePart> device = {};         // of the region, where it is copied from there
};

struct WantedOutput {
  std::string name;
  int64_t classes = 0;  // above 0: that many strings "SCORE:INDEX" instead, the highest first
  std::optional<RegionPart> region = {};  // to which its bytes go
  std::optional<DevicePart> device = {};  // of the region, where it is copied there
};

// Which sequence a request belongs to, and whether it begins or ends it.
struct SequenceMark {
  std::string id;       // empty: to none
  uint64_t number = 0;  // what a model is told of it; 0 of an id that is a text
  bool start = false, end = false;
};

struct InferRequest {
  std::string model;
  std::string version;  // empty: the one that the version policy prefers
  std::vector<InferInput> inputs;
  std::vector<WantedOutput> outputs;  // none: all of the model's
  SequenceMark sequence = {};
  uint64_t priority = 0;   // 1 is the highest; 0: the model's default
  int64_t timeout_us = 0;  // in the queue, where the model's policy lets requests say so
  std::optional<int64_t> arrived_ns = std::nullopt;  // when that began; none: when it is queued
  int64_t deadline_ns = INT64_MAX;                   // as the clock has it
  std::shared_ptr<Cancellation> cancellation = nullptr;
  std::optional<TraceContext> caller_trace = std::nullopt;
  std::shared_ptr<OperationTrace> trace = nullptr;  // null: it is not traced
  std::shared_ptr<const void> owner = nullptr;      // of the pieces
  Reservation paid = {};                            // for them, for as long as the request is kept
};

struct InferOutput {
  std::string name;
  std::string_view datatype;  // a constant
  Shape shape;
  const void* data = nullptr;
  int64_t bytes = 0;
  std::shared_ptr<const void> owner = nullptr;  // of the data
  std::optional<RegionPart> region = {};        // where the data is, instead
};

struct InferResult {
  std::string model, version;
  std::vector<InferOutput> outputs;
};

// Called exactly once, on any thread, and must be quick.
using InferDone = std::function<void(absl::StatusOr<InferResult>)>;

}  // namespace telegrad
