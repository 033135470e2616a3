// A device worker that attacks the memory and the socket that it shares with the daemon. The name
// of the program that it was made to load last selects the attack.
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "devices/api/futex.h"
#include "devices/api/shared_memory.h"
#include "devices/worker/control.h"
#include "devices/worker/protocol.h"
#include "engine/base/strings.h"
#include "engine/process/child_process.h"
#include "engine/process/frame.h"

namespace telegrad {
namespace {

void Ring(WorkerControl& control) {
  control.ended.bell.fetch_add(1);
  FutexWake(control.ended.bell);
}

void Do(const std::string& what, uint64_t number, WorkerControl& control, char* memory) {
  RingRecord& record = control.RecordOf(number);
  record.code = 0;
  if (what == "silent") {
    memory[record.argument[0]] = 1;  // that it has begun
    return;
  }
  if (what == "ends_too_much") {
    control.ended.value.store(UINT64_MAX);
  } else if (what == "unknown_code") {
    record.code = 12345;
    record.message_bytes = UINT32_MAX;
    std::memset(record.message, '\n', sizeof(record.message));
    control.ended.value.store(number);
  } else if (what == "wild_times") {
    for (RingTimes& times : record.times) times = {INT64_MIN, INT64_MAX};
    control.ended.value.store(number);
  } else if (what.starts_with("random")) {
    std::mt19937_64 random(std::stoull(what.substr(6)));
    auto* const words = reinterpret_cast<uint64_t*>(&control);
    for (size_t i = 0; i < sizeof(control) / sizeof(uint64_t); ++i) words[i] = random();
  } else {
    control.ended.value.store(number);
  }
  Ring(control);
}

int Serve(int socket) {
  (void)WriteFrame(socket, EncodeWorkerHello());
  const auto descriptors = ReceiveDescriptors(socket, 2);
  const auto setup = ReadFrame(socket, kMaxWorkerSetup);
  if (!descriptors.ok() || !setup.ok()) return 1;
  // It cannot take pages away from under the daemon.
  if (ftruncate((*descriptors)[0].get(), 0) == 0 || ftruncate((*descriptors)[1].get(), 0) == 0) {
    return 2;
  }
  auto mapping = SharedMapping::Map((*descriptors)[0].get(), sizeof(WorkerControl));
  const auto decoded = DecodeWorkerSetup(*setup);
  if (!mapping.ok() || !decoded.ok()) return 1;
  auto memory = SharedMapping::Map((*descriptors)[1].get(), decoded->memory_bytes);
  if (!memory.ok()) return 1;
  auto& control = *reinterpret_cast<WorkerControl*>((*mapping)->base());
  (void)WriteFrame(socket, EncodeWorkerReply(0, absl::OkStatus()));
  while (true) {
    const auto frame = ReadFrame(socket, kMaxWorkerOrder);
    if (!frame.ok()) return 0;
    const auto order = DecodeWorkerOrder(*frame);
    if (!order.ok()) return 1;
    if (order->name == "replies_garbage") {
      (void)WriteFrame(socket, "garbage");
    } else if (order->name == "replies_no_frame") {
      (void)!write(socket, "this is no frame, but long enough for its head", 46);
    } else if (order->name == "replies_to_another") {
      (void)WriteFrame(socket, EncodeWorkerReply(order->program + 1, absl::OkStatus()));
    } else if (order->name == "leaves") {
      return 7;
    } else {
      (void)WriteFrame(socket, EncodeWorkerReply(order->program, absl::OkStatus()));
    }
    if (order->name == "hangs_up") close(socket);
    if (order->name == "hangs_up") pause();
    std::thread([&control, base = (*memory)->base(), what = order->name] {
      for (uint64_t number = 1;; ++number) {
        while (!control.posted.Reached(number)) {
          FutexWait(control.posted.bell, control.posted.bell.load(), 1'000'000);
        }
        control.pong.store(control.ping.load());
        Do(what, number, control, base);
      }
    }).detach();
    std::thread([&control] {
      while (true) {
        control.pong.store(control.ping.load());
        FutexWait(control.attend, control.attend.load(), 1'000'000);
      }
    }).detach();
  }
}

}  // namespace
}  // namespace telegrad

int main() {
  if (!telegrad::BeginAsChild()) return 2;
  const int code = telegrad::Serve(telegrad::kChildSocket);
  _exit(code);
}
