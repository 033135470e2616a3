// A front whose far server sends wrong answers, has another version of the protocol, or is no
// Telegrad server: each gives a clear error, and nothing hangs.
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "engine/base/device_lost.h"
#include "tests/devices/fixture.h"
#include "tests/fakes/manual_clock.h"
#include "tests/remote/fake_server.h"
#include "tests/remote/two_daemons.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

class HostileRemotes : public ::testing::Test {
 protected:
  ~HostileRemotes() override {
    devices_.clear();
    server_.Shutdown();
  }

  Device& Open() {
    auto devices = OpenRemote(options_, nullptr);
    EXPECT_TRUE(devices.ok()) << devices.status();
    devices_ = *std::move(devices);
    return *devices_[0];
  }
  static void Answer(const v1::ExecuteRequest& request, FakeCompute::Stream* stream,
                     const std::function<void(v1::ExecuteResponse&)>& fill) {
    FakeServer::Answer(request, stream, fill);
  }
  // How a read of 4 bytes ends.
  absl::Status ReadFrom(Device& device) {
    auto memory = device.Alloc(4);
    if (!memory.ok()) return memory.status();
    const auto point = Copy(device, HostBuffer(*host_, "????"), Whole(*memory));
    return point.ok() ? point->Wait(absl::Seconds(60)) : point.status();
  }

  FakeServer server_;
  FakeSession& session_ = server_.session;
  FakeCompute& compute_ = server_.compute;
  RemoteOptions options_ = server_.Options("r");
  std::unique_ptr<Device> host_ = OpenHost();
  std::vector<std::unique_ptr<Device>> devices_;
};

TEST_F(HostileRemotes, OneThatSpeaksAnotherProtocol) {
  session_.refuses = true;
  const auto devices = OpenRemote(options_, nullptr);
  EXPECT_EQ(devices.status().code(), absl::StatusCode::kFailedPrecondition) << devices.status();
  EXPECT_THAT(std::string(devices.status().message()),
              HasSubstr("remote r: no common version of the protocol"));
}

TEST_F(HostileRemotes, OneThatIsTooOld) {
  session_.binds_parts = false;
  EXPECT_EQ(Open().Alloc(4).status().code(), absl::StatusCode::kFailedPrecondition);
}

// One of a release before Copy: bytes go by way of the front, in their order.
TEST_F(HostileRemotes, OneThatDoesNotCopyIsReadAndWritten) {
  std::map<uint64_t, std::string> buffers;
  compute_.answer = [&](const v1::ExecuteRequest& request, FakeCompute::Stream* stream) {
    EXPECT_FALSE(request.has_copy());
    if (request.has_alloc()) buffers[request.alloc().handle()].resize(request.alloc().bytes());
    if (request.has_write()) {
      buffers[request.write().handle()].replace(request.write().offset(), request.data().size(),
                                                request.data());
    }
    if (request.has_sync()) Answer(request, stream, [](auto&) {});
    if (!request.has_read()) return;
    Answer(request, stream, [&](auto& r) {
      r.mutable_read()->set_offset(request.read().offset());
      r.mutable_read()->set_last(true);
      r.set_data(
          buffers[request.read().handle()].substr(request.read().offset(), request.read().bytes()));
    });
  };
  Device& device = Open();
  const BufferView a = Whole(*device.Alloc(8)), b = Whole(*device.Alloc(8));
  const BufferView out = HostBuffer(*host_, "????????");
  ASSERT_TRUE(Copy(device, a, HostBuffer(*host_, "12345678")).ok());
  const auto commands =
      *device.Encode({CopyCommand({{0, 0}, {1, 2}, 4}), CopyCommand({{0, 4}, {0, 0}, 4})});
  ASSERT_TRUE(device.queue().Submit(commands, {b, a}, {}).ok());
  ASSERT_TRUE(Copy(device, a, HostBuffer(*host_, "abcdefgh"), {device.queue().last()}).ok());
  ASSERT_EQ(Copy(device, out, b)->Wait(), absl::OkStatus());
  EXPECT_EQ(Bytes(out), "34563456");
}

TEST_F(HostileRemotes, NobodyAtAll) {
  const auto devices = OpenRemote(
      {.name = "r", .address = "127.0.0.1:1", .connect_time = absl::Milliseconds(50)}, nullptr);
  EXPECT_EQ(devices.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(devices.status().message()), HasSubstr("127.0.0.1:1"));
}

TEST_F(HostileRemotes, ItSaysAnotherHash) {
  compute_.answer = [](const v1::ExecuteRequest& request, FakeCompute::Stream* stream) {
    if (!request.has_put()) return;
    Answer(request, stream, [](auto& r) { r.mutable_put()->set_hash(std::string(32, 'x')); });
  };
  const auto loaded = Open().Load({.name = "x", .binary = "graph", .hash = std::string(32, 'y')});
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kInternal) << loaded.status();
  EXPECT_THAT(std::string(loaded.status().message()), HasSubstr("hash"));
}

TEST_F(HostileRemotes, ItSendsMoreBytesThanWereAskedFor) {
  compute_.answer = [](const v1::ExecuteRequest& request, FakeCompute::Stream* stream) {
    if (!request.has_read()) return;
    Answer(request, stream, [](auto& r) {
      r.mutable_read()->set_last(true);
      r.set_data("12345678");
    });
  };
  EXPECT_EQ(ReadFrom(Open()).code(), absl::StatusCode::kUnavailable);
}

// What is missing of a read is not taken for what was in the memory before.
TEST_F(HostileRemotes, ItSendsFewerBytesThanWereAskedFor) {
  struct Chunk {
    uint64_t offset;
    std::string data;
    bool last;
  };
  const std::vector<std::vector<Chunk>> lies = {
      {{0, "12", true}}, {{0, "", true}}, {{2, "34", true}}, {{2, "34", false}, {0, "12", true}}};
  for (const auto& chunks : lies) {
    compute_.answer = [&](const v1::ExecuteRequest& request, FakeCompute::Stream* stream) {
      if (!request.has_read()) return;
      for (const Chunk& chunk : chunks) {
        Answer(request, stream, [&](auto& r) {
          r.mutable_read()->set_offset(chunk.offset);
          r.mutable_read()->set_last(chunk.last);
          r.set_data(chunk.data);
        });
      }
    };
    devices_.clear();
    EXPECT_EQ(ReadFrom(Open()).code(), absl::StatusCode::kUnavailable) << chunks[0].data;
  }
}

// The second of two reads before the first.
TEST_F(HostileRemotes, ItAnswersInAnotherOrder) {
  std::vector<v1::ExecuteRequest> reads;
  compute_.answer = [&](const v1::ExecuteRequest& request, FakeCompute::Stream* stream) {
    if (!request.has_read()) return;
    reads.push_back(request);
    if (reads.size() != 2) return;
    for (const auto& read : {reads[1], reads[0]}) {
      Answer(read, stream, [](auto& r) {
        r.mutable_read()->set_last(true);
        r.set_data("1234");
      });
    }
  };
  Device& device = Open();
  const auto memory = device.Alloc(4);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const auto first = Copy(device, HostBuffer(*host_, "????"), Whole(*memory)),
             second = Copy(device, HostBuffer(*host_, "????"), Whole(*memory));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->Wait(absl::Seconds(60)).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(second->Wait(absl::Seconds(60)).code(), absl::StatusCode::kUnavailable);
}

TEST_F(HostileRemotes, ItAnswersWhatNobodyAsked) {
  compute_.answer = [](const v1::ExecuteRequest& request, FakeCompute::Stream* stream) {
    if (!request.has_read()) return;
    Answer(request, stream, [&](auto& r) { r.set_op_id(request.op_id() + 1000); });
  };
  EXPECT_EQ(ReadFrom(Open()).code(), absl::StatusCode::kUnavailable);
}

TEST_F(HostileRemotes, ItAnswersWithoutEnd) {
  compute_.answer = [](const v1::ExecuteRequest& request, FakeCompute::Stream* stream) {
    if (!request.has_read()) return;
    v1::ExecuteResponse response;
    response.set_op_id(request.op_id());
    response.mutable_read()->set_last(true);
    response.set_data("1234");
    while (stream->Write(response)) {
    }
  };
  // The first answer is one; what follows ends the session, and the next use opens another.
  Device& device = Open();
  const absl::Status read = ReadFrom(device);
  EXPECT_TRUE(read.ok() || absl::IsUnavailable(read)) << read;
}

// Nothing waits for one that takes everything and answers nothing, once the grace is over.
TEST_F(HostileRemotes, ItNeverAnswers) {
  options_.grace = absl::Milliseconds(100);
  options_.interval = absl::Milliseconds(10);
  Device& device = Open();
  auto memory = device.Alloc(4);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const auto point = Copy(device, HostBuffer(*host_, "????"), Whole(*memory));
  ASSERT_TRUE(point.ok());
  server_.Shutdown();
  const absl::Status ended = point->Wait(absl::Seconds(60));
  EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable) << ended;
  EXPECT_THAT(std::string(ended.message()), HasSubstr("is lost"));
}

// What lives and says that it is well, but leaves a graph without an answer, holds up who sent it
// for so long and no longer.
TEST_F(HostileRemotes, ItLeavesAGraphWithoutAnAnswer) {
  options_.wait_limit = absl::Milliseconds(50);
  const auto loaded = Open().Load({.name = "x", .binary = "graph"});
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kDeadlineExceeded) << loaded.status();
  EXPECT_THAT(std::string(loaded.status().message()), HasSubstr("r: the server has not answered"));
}

TEST_F(HostileRemotes, ItSaysImpossibleCosts) {
  double seconds = 0;
  int64_t bytes = 0;
  compute_.answer = [&](const v1::ExecuteRequest& request, FakeCompute::Stream* stream) {
    if (!request.has_put()) return;
    Answer(request, stream, [&](auto& r) {
      r.mutable_put()->set_hash(std::string(32, 'x'));
      r.mutable_put()->mutable_cost()->set_seconds(seconds);
      r.mutable_put()->mutable_cost()->set_temporary_bytes(static_cast<uint64_t>(bytes));
    });
  };
  Device& device = Open();
  EXPECT_TRUE(device.Load({.name = "x", .binary = "graph"}).ok());
  for (const double wrong : {std::nan(""), HUGE_VAL, -1.0}) {
    seconds = wrong;
    EXPECT_EQ(device.Load({.name = "x", .binary = "graph"}).status().code(),
              absl::StatusCode::kInternal);
  }
  seconds = 0;
  bytes = -1;
  EXPECT_EQ(device.Load({.name = "x", .binary = "graph"}).status().code(),
            absl::StatusCode::kInternal);
}

TEST_F(HostileRemotes, ItHasImpossibleDevices) {
  session_.more = [](v1::ListDevicesResponse* response) {
    response->add_devices()->set_name("CPU:0");  // again
    response->add_devices()->set_name("line\nbreak");
    response->add_devices()->set_name(std::string(100'000, 'x'));
    v1::Device* negative = response->add_devices();
    negative->set_name("CPU:1");
    negative->set_memory_limit(UINT64_MAX);
    v1::Device* odd = response->add_devices();
    odd->set_name("CPU:2");
    odd->set_threads(UINT32_MAX);
    for (int i = 0; i < 10'000; ++i) response->add_devices()->set_name(StrCat("GPU:", i));
  };
  std::vector<std::string> notes;
  const auto devices = OpenRemote(options_, &notes);
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_EQ(devices->size(), 256u);
  EXPECT_EQ((*devices)[0]->name(), "r/CPU:0");
  EXPECT_EQ((*devices)[1]->name(), "r/CPU:2");
  EXPECT_EQ((*devices)[1]->target().threads, 1);
  EXPECT_EQ(notes.size(), 1024u);
  EXPECT_EQ(notes[1], "r/line\\nbreak: that is not a name of a device");
  for (const std::string& note : notes) EXPECT_LT(note.size(), 200u);
}

// One that takes a run and never ends it, whatever is asked of it: its session is given up once it
// has had its time, and others are opened.
TEST_F(HostileRemotes, ItNeverEndsARunThatWasCancelled) {
  compute_.answer = [](const v1::ExecuteRequest& request, FakeCompute::Stream* stream) {
    if (!request.has_put()) return;
    Answer(request, stream, [](auto& r) { r.mutable_put()->set_hash(std::string(32, 'x')); });
  };
  options_.grace = absl::Milliseconds(100);
  Device& device = Open();
  Command launch;
  launch.launch.program = *device.Load({.name = "x", .binary = "graph"});
  launch.launch.arguments = {{0, 0}};
  const auto wish = std::make_shared<Cancellation>();
  const auto point =
      device.queue().Submit(*device.Encode({launch}), {Whole(*device.Alloc(4))}, {}, nullptr, wish);
  ASSERT_TRUE(point.ok()) << point.status();
  wish->Cancel();
  const absl::Status ended = point->Wait(absl::Seconds(60));
  EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable) << ended;
  EXPECT_THAT(std::string(ended.message()), HasSubstr("has not ended a run that was cancelled"));
  EXPECT_TRUE(device.Alloc(4).ok());
}

// The same with a deadline, where the server has all the time there is: the run ends here soon
// after its deadline. What it may still write to there is freed when the server has ended it.
TEST_F(HostileRemotes, ARunEndsByItsDeadlineThoughTheServerIsSilent) {
  struct {
    Mutex mutex;
    v1::ExecuteRequest request;
    FakeCompute::Stream* stream = nullptr;
  } run;
  compute_.answer = [&](const v1::ExecuteRequest& request, FakeCompute::Stream* stream) {
    if (request.has_put()) {
      Answer(request, stream, [](auto& r) { r.mutable_put()->set_hash(std::string(32, 'x')); });
    }
    if (!request.has_run()) return;
    const MutexLock lock(run.mutex);
    run.request = request;
    run.stream = stream;
  };
  const auto arrived = [&] {
    const MutexLock lock(run.mutex);
    return run.stream != nullptr;
  };
  options_.grace = absl::Hours(1);
  Device& device = Open();
  Command launch;
  launch.launch.program = *device.Load({.name = "x", .binary = "graph"});
  launch.launch.arguments = {{0, 0}};
  const auto commands = *device.Encode({launch});
  std::shared_ptr<Memory> memory = *device.Alloc(4);
  fakes::ManualClock clock;
  const auto wish = std::make_shared<Cancellation>(nullptr, &clock, clock.Ns() + 1);
  const auto point = device.queue().Submit(commands, {Whole(memory)}, {}, nullptr, wish);
  ASSERT_TRUE(point.ok()) << point.status();
  ASSERT_TRUE(Becomes(arrived));
  clock.Advance(1);
  ASSERT_TRUE(Becomes([&] { return point->timeline->value() >= point->value; }));
  const absl::Status ended = point->timeline->StatusOf(point->value);
  EXPECT_EQ(ended.code(), absl::StatusCode::kDeadlineExceeded) << ended;
  EXPECT_EQ(device.Health(), absl::OkStatus());
  EXPECT_EQ(device.generation(), 1u) << "nothing is lost";
  memory.reset();
  EXPECT_EQ(device.memory_used(), 4);
  {
    const MutexLock lock(run.mutex);
    Answer(run.request, run.stream, [](auto& r) { r.mutable_run(); });
  }
  EXPECT_TRUE(Becomes([&] { return device.memory_used() == 0; }));
}

// The same of copies: what is read into memory of the front is not written there once its owner has
// it back, however late it comes.
TEST_F(HostileRemotes, CopiesEndByTheirDeadlineThoughTheServerIsSilent) {
  struct {
    Mutex mutex;
    std::vector<v1::ExecuteRequest> requests;
    FakeCompute::Stream* stream = nullptr;
    bool answers = false;
  } asked;
  const auto reply = [&](const v1::ExecuteRequest& request, FakeCompute::Stream* stream) {
    Answer(request, stream, [&](auto& r) {
      if (!request.has_read()) return;
      r.mutable_read()->set_last(true);
      r.set_data("late");
    });
  };
  compute_.answer = [&](const v1::ExecuteRequest& request, FakeCompute::Stream* stream) {
    if (!request.has_read() && !request.has_sync()) return;
    const MutexLock lock(asked.mutex);
    asked.stream = stream;
    if (asked.answers) return reply(request, stream);
    asked.requests.push_back(request);
  };
  const auto arrived = [&] {
    const MutexLock lock(asked.mutex);
    return std::ranges::any_of(asked.requests, [](const auto& r) { return r.has_read(); });
  };
  options_.grace = absl::Hours(1);
  Device& device = Open();
  std::shared_ptr<Memory> memory = *device.Alloc(4);
  const BufferView from = HostBuffer(*host_, "sent"), into = HostBuffer(*host_, "????");
  const auto copy = *device.Encode({CopyCommand({.to = {0, 0}, .from = {1, 0}, .length = 4})});
  fakes::ManualClock clock;
  const auto wish = std::make_shared<Cancellation>(nullptr, &clock, clock.Ns() + 1);
  Queue& queue = device.queue(QueueKind::kCopy);
  const TimelinePoint up = *queue.Submit(copy, {Whole(memory), from}, {}, nullptr, wish);
  const TimelinePoint down = *queue.Submit(copy, {into, Whole(memory)}, {}, nullptr, wish);
  ASSERT_TRUE(Becomes(arrived));
  clock.Advance(1);
  for (const TimelinePoint& point : {up, down}) {
    ASSERT_TRUE(Becomes([&] { return point.timeline->value() >= point.value; }));
    EXPECT_TRUE(absl::IsDeadlineExceeded(point.timeline->StatusOf(point.value)));
  }
  EXPECT_EQ(device.Health(), absl::OkStatus());
  EXPECT_EQ(device.generation(), 1u) << "nothing is lost";
  memory.reset();
  EXPECT_EQ(device.memory_used(), 4) << "it may still be sent there";
  std::memcpy(into.memory->host(), "keep", 4);
  {
    const MutexLock lock(asked.mutex);
    for (const v1::ExecuteRequest& request : asked.requests) reply(request, asked.stream);
    asked.answers = true;
  }
  EXPECT_EQ(ReadFrom(device), absl::OkStatus());
  EXPECT_EQ(std::string(static_cast<const char*>(into.memory->host()), 4), "keep");
  EXPECT_TRUE(Becomes([&] { return device.memory_used() == 0; }));
}

// One that drains takes no calls, and answers what its sessions have asked.
TEST_F(HostileRemotes, ItTakesNoCallsWhileItsSessionGoesOn) {
  compute_.answer = [](const v1::ExecuteRequest& request, FakeCompute::Stream* stream) {
    if (!request.has_read()) return;
    Answer(request, stream, [](auto& r) {
      r.mutable_read()->set_last(true);
      r.set_data("1234");
    });
  };
  options_.grace = absl::Seconds(3);  // in which at least one of many reads is answered
  options_.interval = absl::Milliseconds(10);
  Device& device = Open();
  const BufferView memory = Whole(*device.Alloc(4)), out = HostBuffer(*host_, "????");
  session_.list_refusal = grpc::StatusCode::UNAVAILABLE;
  absl::Status read;
  EXPECT_TRUE(Becomes([&] {
    if (read.ok()) read = Copy(device, out, memory)->Wait(absl::Seconds(60));
    return !device.Health().ok();
  }));
  EXPECT_EQ(read, absl::OkStatus());
  EXPECT_FALSE(IsDeviceLost(device.Health())) << device.Health();
  EXPECT_THAT(std::string(device.Health().message()), HasSubstr("r takes no new work"));
  EXPECT_TRUE(absl::IsUnavailable(device.Load({.name = "x", .binary = "graph"}).status()));
  EXPECT_EQ(Copy(device, out, memory)->Wait(absl::Seconds(60)), absl::OkStatus());
  EXPECT_EQ(device.generation(), 1u);
  // Once nothing moves, it is lost.
  EXPECT_TRUE(Becomes([&] { return IsDeviceLost(device.Health()); }));
  EXPECT_FALSE(Copy(device, out, memory)->Wait(absl::Seconds(60)).ok());
}

// One that does not know the front's credentials any more, which have expired: what it has stays.
TEST_F(HostileRemotes, ItRefusesTheFrontWhileItsSessionGoesOn) {
  compute_.answer = [](const v1::ExecuteRequest& request, FakeCompute::Stream* stream) {
    if (!request.has_read()) return;
    Answer(request, stream, [](auto& r) {
      r.mutable_read()->set_last(true);
      r.set_data("1234");
    });
  };
  options_.grace = absl::Milliseconds(50);
  options_.interval = absl::Milliseconds(10);
  Device& device = Open();
  const BufferView memory = Whole(*device.Alloc(4)), out = HostBuffer(*host_, "????");
  ASSERT_EQ(Copy(device, out, memory)->Wait(absl::Seconds(60)), absl::OkStatus());
  session_.list_refusal = grpc::StatusCode::UNAUTHENTICATED;
  EXPECT_TRUE(Becomes([&] { return !device.Health().ok(); }));
  EXPECT_FALSE(IsDeviceLost(device.Health())) << device.Health();
  EXPECT_THAT(std::string(device.Health().message()), HasSubstr("this front cannot call"));
  EXPECT_THAT(std::string(device.Health().message()), HasSubstr("--remote-token-file"));
  EXPECT_EQ(Copy(device, out, memory)->Wait(absl::Seconds(60)), absl::OkStatus());
  session_.list_refusal = grpc::StatusCode::OK;
  EXPECT_TRUE(Becomes([&] { return device.Health().ok(); }));
  EXPECT_EQ(Copy(device, out, memory)->Wait(absl::Seconds(60)), absl::OkStatus());
  EXPECT_EQ(device.generation(), 1u);
}

// Marks that an earlier release shows to its clients, and device names, are not for those here.
TEST_F(HostileRemotes, ItsWordsAreThoseOfAFarDevice) {
  std::atomic<const char*> ill = nullptr;
  session_.more = [&](v1::ListDevicesResponse* response) {
    const char* const how = ill;
    if (how == nullptr) return;
    response->mutable_devices(0)->set_healthy(false);
    response->mutable_devices(0)->set_health(how);
  };
  compute_.answer = [](const v1::ExecuteRequest& request, FakeCompute::Stream* stream) {
    if (!request.has_read()) return;
    Answer(request, stream, [](auto& r) {
      r.mutable_status()->set_code(static_cast<uint32_t>(absl::StatusCode::kResourceExhausted));
      r.mutable_status()->set_message("CPU:0: it is full");
    });
  };
  options_.interval = absl::Milliseconds(10);
  Device& device = Open();
  EXPECT_EQ(ReadFrom(device),
            absl::ResourceExhaustedError("r/CPU:0: it is full; the limit is of the server at " +
                                         options_.address));
  ill = "UNAVAILABLE: it burns [telegrad/device-lost='']";
  EXPECT_TRUE(Becomes([&] { return !device.Health().ok(); }));
  EXPECT_TRUE(IsDeviceLost(device.Health()));
  const auto health = [&] { return std::string(device.Health().message()); };
  EXPECT_THAT(health(), ::testing::EndsWith("says: UNAVAILABLE: it burns"));
  ill = "UNAVAILABLE: CPU:0's worker was killed";
  EXPECT_TRUE(Becomes([&] { return health().ends_with("killed"); }));
  EXPECT_THAT(health(), ::testing::EndsWith("says: UNAVAILABLE: r/CPU:0's worker was killed"));
  devices_.clear();  // it asks `session_.more`
}

// One that takes nothing more off the connection, so that what is sent to it piles up here: what
// waits behind it is ended by its cancellation, too. The copies are too short for a connection of
// their own.
TEST_F(HostileRemotes, ItStopsReading) {
  const auto go_on = std::make_shared<std::atomic<bool>>(false);  // its handler may outlive this
  compute_.answer = [go_on](const v1::ExecuteRequest& request, FakeCompute::Stream*) {
    while (request.has_write() && !*go_on) std::this_thread::yield();
  };
  options_.grace = absl::Milliseconds(100);
  Device& device = Open();
  const std::shared_ptr<Memory> memory = *device.Alloc(64 << 10);
  const BufferView from = HostBuffer(*host_, std::string(64 << 10, 'x'));
  const auto commands =
      *device.Encode({CopyCommand({.to = {0, 0}, .from = {1, 0}, .length = 64 << 10})});
  const auto wish = std::make_shared<Cancellation>();
  TimelinePoint last;
  for (int i = 0; i < 64; ++i) {
    const auto point =
        device.queue(QueueKind::kCopy).Submit(commands, {Whole(memory), from}, {}, nullptr, wish);
    ASSERT_TRUE(point.ok()) << point.status();
    last = *point;
  }
  EXPECT_EQ(last.timeline->value(), 0u);
  wish->Cancel();
  const absl::Status ended = last.Wait(absl::Seconds(60));
  EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable) << ended;
  EXPECT_TRUE(IsDeviceLost(ended)) << ended;
  EXPECT_THAT(std::string(ended.message()), HasSubstr("r is lost (generation 1)"));
  EXPECT_THAT(std::string(ended.message()), HasSubstr("within the time that it has to answer"));
  EXPECT_EQ(last.timeline->value(), 64u);
  *go_on = true;
}

}  // namespace
}  // namespace telegrad
