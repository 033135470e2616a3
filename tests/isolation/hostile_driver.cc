// A driver's process that attacks the daemon that started it. The library that it is to open names
// the attack.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "devices/api/futex.h"
#include "devices/api/shared_memory.h"
#include "devices/hosted/hosted_control.h"
#include "devices/hosted/messages.h"
#include "engine/base/strings.h"
#include "engine/process/child_process.h"
#include "engine/process/frame.h"

namespace telegrad {
namespace {

std::string Random(std::mt19937_64& random, size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

HostedFacts Facts(const std::string& attack, int64_t limit) {
  HostedFacts facts;
  facts.name = "EVIL:0";
  facts.target = OpenClTarget(1);
  facts.memory_limit = 1 << 20;
  // Where it is not given a limit, each that is started finds 64 KiB less than the one before: they
  // count in a file.
  if (limit == 0 && attack.starts_with("counts:")) {
    std::ofstream(attack.substr(7), std::ios::app) << 'x';
    std::ifstream counted(attack.substr(7), std::ios::ate);
    facts.memory_limit -= (int64_t{64} << 10) * static_cast<int64_t>(counted.tellg());
  } else if (limit > 0) {
    facts.memory_limit = std::min<int64_t>(facts.memory_limit, limit);
  }
  facts.queues.push_back({"EVIL:0 compute", kComputesAndCopies});
  if (attack == "slow") facts.queues.push_back({"EVIL:0 copy", kCopiesOnly});
  return facts;
}

// What it says that it has opened.
std::string Opened(const std::string& attack, int64_t limit) {
  HostedOpened opened;
  HostedFacts facts = Facts(attack, limit);
  if (attack == "no_queues") facts.queues.clear();
  if (attack == "too_many_queues") {
    for (int i = 0; i < 100; ++i) facts.queues.push_back({StrCat("EVIL:0 ", i), kCopiesOnly});
  }
  if (attack == "queue_of_another") facts.queues[0].name = "CPU:0 compute";
  if (attack == "another_device") facts.name = "CPU:0";
  if (attack == "rates") facts.rates.bytes = std::numeric_limits<double>::quiet_NaN();
  if (attack == "negative_limit") facts.memory_limit = -1;
  opened.device = facts;
  opened.shown = attack == "endless" ? std::numeric_limits<int64_t>::max() : 1;
  if (attack == "negative") opened.shown = -1;
  return EncodeHostedOpened(opened);
}

class Attacker {
 public:
  Attacker(int socket, std::string attack, HostedControl& control)
      : socket_(socket), attack_(std::move(attack)), control_(control) {}

  int Serve() {
    // It seems to live.
    const bool ignores = attack_.starts_with("ignores_loads:");
    const bool never_ends = attack_.starts_with("ignores_runs:");
    if (ignores || never_ends || attack_ == "keeps_memory" || attack_ == "slow") {
      std::thread([this] { AnswerPings(); }).detach();
    }
    while (attack_ != "leaves") {
      auto frame = ReadFrame(socket_, kMaxHostedOrder);
      if (!frame.ok()) return 0;
      control_.pong.store(control_.ping.load());
      ByteReader in(*frame);
      const auto kind = ReadKind(&in, HostedOrder::kCancel);
      if (kind == HostedOrder::kGiveBack && attack_ == "keeps_memory") continue;
      // As long as there is this file.
      if (ignores && (kind == HostedOrder::kLoad || kind == HostedOrder::kEncode) &&
          std::filesystem::exists(attack_.substr(14))) {
        continue;
      }
      if (never_ends && kind == HostedOrder::kRun && std::filesystem::exists(attack_.substr(13))) {
        continue;
      }
      if (kind == HostedOrder::kRun && attack_ == "slow") {  // one after the other, whatever queue
        const HostedPoint point = ReadHostedRun(&in).point;
        // The length of the work, which nobody waits out to be in step with something else.
        if (point.queue == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
        if (point.queue < 2) control_.queues[point.queue].ended.value.store(point.number);
        continue;
      }
      if (kind <= HostedOrder::kSense) {
        Answer(in.Word<uint64_t>());
      } else if (kind == HostedOrder::kRun || kind == HostedOrder::kCopy) {
        if (attack_ == "heavy_times") {
          HostedTimes times{.point = {0, ++number_}};
          times.times.assign(kMaxHostedTimes, {1, 2});
          (void)WriteFrame(socket_, EncodeHostedTimes(times));
          continue;
        }
        End(++number_);
      }
    }
    return 0;
  }

 private:
  void AnswerPings() {
    while (true) {
      const uint32_t ping = control_.ping.load();
      control_.pong.store(ping);
      FutexWait(control_.ping, ping, std::numeric_limits<int64_t>::max());
    }
  }
  void Answer(uint64_t request) {
    HostedAnswer answer{.request = request};
    if (attack_ == "keeps_memory") answer.footprint = std::numeric_limits<int64_t>::max();
    if (attack_ == "answers_another") answer.request += 17;
    if (attack_ == "answers_garbage") return (void)WriteFrame(socket_, "garbage");
    if (attack_ == "answers_no_frame") {
      return (void)!write(socket_, "this is no frame, but long enough for its head", 46);
    }
    if (attack_ == "answers_half") return (void)!write(socket_, "TGRF\xff", 5);
    std::string frame = EncodeHostedAnswer(answer);
    if (attack_ == "answers_twice") (void)WriteFrame(socket_, frame);
    if (attack_ == "unasked_times") {
      (void)WriteFrame(socket_, EncodeHostedTimes({.point = {0, 12345}}));
    }
    if (attack_ == "unasked_loss") (void)WriteFrame(socket_, EncodeHostedLoss("a\nlie"));
    if (attack_.starts_with("random_frames")) {
      std::mt19937_64 random(std::stoull(attack_.substr(13)));
      for (int i = 0; i < 20; ++i) {
        std::string bytes = Random(random, random() % 200);
        if (!bytes.empty()) bytes[0] = static_cast<char>(random() % 3);
        (void)WriteFrame(socket_, bytes);
      }
    }
    (void)WriteFrame(socket_, frame);
  }

  void End(uint64_t number) {
    HostedQueueWords& words = control_.queues[0];
    HostedOutcome& outcome = words.OutcomeOf(number);
    uint64_t ended = number;
    if (attack_ == "ends_too_much") ended = UINT64_MAX;
    if (attack_ == "unknown_code") {
      outcome.code = 12345;
      outcome.message_bytes = UINT32_MAX;
      outcome.message.fill('\n');
    }
    if (attack_ == "wild_times") {
      outcome.traced = 1;
      outcome.device_ns = std::numeric_limits<int64_t>::max();
      HostedTimes times{.point = {0, number}};
      times.times.assign(1000, {std::numeric_limits<int64_t>::min(), -1});
      times.times[0] = {-1, std::numeric_limits<int64_t>::max()};
      (void)WriteFrame(socket_, EncodeHostedTimes(times));
    }
    if (attack_ == "no_times") outcome.traced = 1;
    if (attack_.starts_with("random_memory")) {
      std::mt19937_64 random(std::stoull(attack_.substr(13)));
      const std::string bytes = Random(random, sizeof(words));
      std::memcpy(static_cast<void*>(&words), bytes.data(), bytes.size());
      return;
    }
    // Another length each time that somebody looks.
    if (attack_ == "flips_length") {
      outcome.code = 13;
      if (!std::exchange(flips_, true)) std::thread([&words] { Flip(words); }).detach();
    }
    words.ended.value.store(ended);
  }

  static void Flip(HostedQueueWords& words) {
    for (uint32_t value = 4;; value = ~value) {
      for (HostedOutcome& outcome : words.outcomes) {
        auto& length = reinterpret_cast<std::atomic<uint32_t>&>(outcome.message_bytes);
        length.store(value, std::memory_order_relaxed);
      }
    }
  }

  bool flips_ = false;
  const int socket_;
  const std::string attack_;
  HostedControl& control_;
  uint64_t number_ = 0;
};

int Serve(int socket) {
  (void)WriteFrame(socket, EncodeHostedHello());
  const auto descriptors = ReceiveDescriptors(socket, 3);
  const auto frame = ReadFrame(socket, kMaxHostedOpened);
  if (!descriptors.ok() || !frame.ok()) return 1;
  // It cannot take pages away from under the daemon.
  if (ftruncate((*descriptors)[0].get(), 0) == 0 || ftruncate((*descriptors)[1].get(), 0) == 0) {
    return 2;
  }
  const auto setup = DecodeHostedSetup(*frame);
  auto mapping = SharedMapping::Map((*descriptors)[0].get(), sizeof(HostedControl));
  if (!setup.ok() || !mapping.ok()) return 1;
  const std::string& attack = setup->library;
  if (attack.starts_with("list_")) {
    const std::string bytes = Opened("", setup->memory_limit);
    const auto at = std::stoull(attack.substr(5));
    (void)WriteFrame(socket, at < bytes.size() ? bytes.substr(0, at) : bytes + "more");
    return 0;
  }
  (void)WriteFrame(socket, Opened(attack, setup->memory_limit));
  return Attacker(socket, attack, *reinterpret_cast<HostedControl*>((*mapping)->base())).Serve();
}

}  // namespace
}  // namespace telegrad

int main() {
  if (!telegrad::BeginAsChild()) return 2;
  const int code = telegrad::Serve(telegrad::kChildSocket);
  _exit(code);
}
