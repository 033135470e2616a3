// What a front does for its clients, without them: 256 MiB between memory of this process and the
// device of another server, by the driver that a front has (devices/remote). Prints the median GB/s
// as its last line, and fails if other bytes come back.
//
// Usage: front_bench HOST:PORT upload|download REPEATS
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "devices/api/host_memory.h"
#include "devices/remote/remote_device.h"
#include "engine/base/status.h"
#include "tests/bench/timing.h"

namespace telegrad::bench {
namespace {

constexpr int64_t kBytes = int64_t{256} << 20;

absl::Status Copy(Device& device, const BufferView& to, const BufferView& from) {
  Command copy{.kind = CommandKind::kCopy, .launch = {}, .copy = {{0, 0}, {1, 0}, kBytes}};
  TG_ASSIGN_OR_RETURN(const auto commands, device.Encode({copy}));
  TG_ASSIGN_OR_RETURN(const TimelinePoint point,
                      device.queue(QueueKind::kCopy).Submit(commands, {to, from}, {}));
  return point.Wait();
}

absl::StatusOr<BufferView> HostBuffer() {
  TG_ASSIGN_OR_RETURN(auto memory, AllocHostMemory(kBytes));
  return BufferView{std::move(memory), 0, kBytes};
}

absl::StatusOr<double> MeasureCopies(const std::string& address, bool up, int repeats) {
  TG_ASSIGN_OR_RETURN(const auto devices, OpenRemote({.name = "far", .address = address}, nullptr));
  if (devices.empty()) return absl::NotFoundError("the server offers no device");
  const auto device = devices[0]->ForTenant("local");
  TG_ASSIGN_OR_RETURN(auto far, device->Alloc(kBytes));
  const BufferView there{std::move(far), 0, kBytes};
  TG_ASSIGN_OR_RETURN(const BufferView in, HostBuffer());
  TG_ASSIGN_OR_RETURN(const BufferView out, HostBuffer());
  std::mt19937_64 random(7);
  for (int64_t i = 0; i < kBytes; i += 8) {
    const uint64_t word = random();
    std::memcpy(static_cast<std::byte*>(in.memory->host()) + i, &word, 8);
  }
  TG_RETURN_IF_ERROR(Copy(*device, there, in));
  TG_RETURN_IF_ERROR(Copy(*device, out, there));
  std::vector<double> rates;
  for (int i = 0; i < repeats; ++i) {
    const double start = Seconds();
    TG_RETURN_IF_ERROR(up ? Copy(*device, there, in) : Copy(*device, out, there));
    rates.push_back(kBytes / (Seconds() - start) / 1e9);
  }
  TG_RETURN_IF_ERROR(Copy(*device, out, there));
  const bool same = std::memcmp(in.memory->host(), out.memory->host(), kBytes) == 0;
  return same ? absl::StatusOr<double>(Median(std::move(rates)))
              : Internal("other bytes came back");
}

}  // namespace
}  // namespace telegrad::bench

int main(int argc, char** argv) {
  // As in telegradd.
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  const std::string direction = argc == 4 ? argv[2] : "";
  const int repeats = argc == 4 ? std::atoi(argv[3]) : 0;
  if (repeats <= 0 || (direction != "upload" && direction != "download")) {
    std::fprintf(stderr, "Usage: front_bench HOST:PORT upload|download REPEATS\n");
    return 2;
  }
  const auto result = telegrad::bench::MeasureCopies(argv[1], direction == "upload", repeats);
  if (!result.ok()) {
    std::fprintf(stderr, "front_bench: %s\n", result.status().ToString().c_str());
    return 1;
  }
  std::printf("%.4f\n", *result);
  return 0;
}
