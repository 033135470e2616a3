// What a compile worker and its daemon say to each other, each message one frame. The worker begins
// with a hello; then it answers requests, one at a time, in order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/types/target.h"

namespace telegrad {

inline constexpr uint32_t kWorkerProtocol = 3;
inline constexpr size_t kMaxHelloBytes = 4096;
inline constexpr size_t kMaxRequestBytes = size_t{17} << 20;  // kMaxIrBytes and the rest
inline constexpr size_t kMaxAnswerBytes = size_t{128} << 20;

struct WorkerHello {
  uint32_t protocol = kWorkerProtocol;
  std::string identity;  // as KernelCompiler's
};

struct WorkerRequest {
  uint64_t id = 0;
  std::string name;
  Target target;
  std::string source;
};

struct WorkerAnswer {
  uint64_t id = 0;  // the request's
  absl::StatusOr<ProgramImage> image;
};

std::string Encode(const WorkerHello& hello);
std::string Encode(const WorkerRequest& request);
std::string Encode(const WorkerAnswer& answer);

// DATA_LOSS for bytes that Encode did not make.
absl::StatusOr<WorkerHello> DecodeHello(std::string_view bytes);
absl::StatusOr<WorkerRequest> DecodeRequest(std::string_view bytes);
absl::StatusOr<WorkerAnswer> DecodeAnswer(std::string_view bytes);

}  // namespace telegrad
