// Clients that break the protocol, send noise or disappear: each stream ends with a status, and the
// daemon goes on.
#include <grpcpp/generic/generic_stub.h>

#include <condition_variable>
#include <fstream>
#include <random>

#include "engine/ir/content_hash.h"
#include "engine/wire/graph_bytes.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/client_callback.h"
#include "telegrad/v1/compute.grpc.pb.h"
#include "telegrad/v1/graph.pb.h"
#include "telegrad/v1/session.grpc.pb.h"
#include "tests/fakes/temporary_directory.h"
#include "tests/server/daemon_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

// The raw method against whatever a client can send.
class RawStream final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  RawStream(const std::shared_ptr<grpc::Channel>& channel, std::vector<std::string> messages)
      : messages_(std::move(messages)) {
    grpc::GenericStub stub(channel);
    stub.PrepareBidiStreamingCall(&context_, "/telegrad.v1.Compute/Execute", {}, this);
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    StartRead(&in_);
    Next();
    StartCall();
  }
  grpc::Status Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
    return status_;
  }
  void OnReadDone(bool ok) override {
    if (ok) StartRead(&in_);
  }
  void OnWriteDone(bool ok) override {
    if (ok) Next();
  }
  void OnDone(const grpc::Status& status) override {
    std::lock_guard lock(mutex_);
    status_ = status;
    done_ = true;
    changed_.notify_all();
  }

 private:
  void Next() {
    if (at_ == messages_.size()) return StartWritesDone();
    const std::string& message = messages_[at_++];
    std::vector<grpc::Slice> slices;  // cut anywhere
    for (size_t i = 0; i < message.size();) {
      const size_t n = std::min<size_t>(1 + (i * 7 + at_) % 5, message.size() - i);
      slices.emplace_back(message.data() + i, n);
      i += n;
    }
    out_ = grpc::ByteBuffer(slices.data(), slices.size());
    StartWrite(&out_);
  }

  grpc::ClientContext context_;
  std::vector<std::string> messages_;
  size_t at_ = 0;
  grpc::ByteBuffer in_, out_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  grpc::Status status_;
};

v1::ExecuteRequest Open() {
  v1::ExecuteRequest open;
  open.set_op_id(1);
  open.mutable_open()->set_protocol(1);
  return open;
}

TEST_F(DaemonTest, BrokenStreamsEndWithAStatus) {
  v1::ExecuteRequest alloc, repeated, empty, late_open = Open();
  alloc.set_op_id(2);
  alloc.mutable_alloc()->set_handle(1);
  alloc.mutable_alloc()->set_bytes(8);
  repeated = alloc;
  repeated.set_op_id(1);
  empty.set_op_id(2);
  late_open.set_op_id(5);
  v1::ExecuteRequest version = Open();
  version.mutable_open()->set_protocol(99);
  const std::string open = Open().SerializeAsString();
  const struct {
    std::vector<std::string> messages;
    grpc::StatusCode code;
  } kCases[] = {
      {{}, grpc::StatusCode::OK},
      {{open, alloc.SerializeAsString()}, grpc::StatusCode::OK},
      {{alloc.SerializeAsString()}, grpc::StatusCode::FAILED_PRECONDITION},
      {{version.SerializeAsString()}, grpc::StatusCode::FAILED_PRECONDITION},
      {{open, repeated.SerializeAsString()}, grpc::StatusCode::INVALID_ARGUMENT},
      {{open, empty.SerializeAsString()}, grpc::StatusCode::INVALID_ARGUMENT},
      {{open, late_open.SerializeAsString()}, grpc::StatusCode::INVALID_ARGUMENT},
      {{open, ""}, grpc::StatusCode::INVALID_ARGUMENT},
      {{open, "\xff\xff\xff"}, grpc::StatusCode::INVALID_ARGUMENT},
      {{open, std::string("\x08\x02\x7a\x7f", 4)}, grpc::StatusCode::INVALID_ARGUMENT},
  };
  for (const auto& c : kCases) {
    RawStream stream(connection_->channel(), c.messages);
    const grpc::Status status = stream.Wait();
    EXPECT_EQ(status.error_code(), c.code)
        << status.error_message() << " on case " << (&c - kCases);
  }
  EXPECT_TRUE(BecomesZero("telegrad_sessions"));
}

// Requests with every field, most of them wrong: small numbers, and those at the ends of their
// types.
class RandomRequests {
 public:
  explicit RandomRequests(uint64_t seed) : random_(seed) {}

  uint64_t Below(uint64_t n) { return random_() % n; }

  // A graph, two buffers and a run of it.
  std::vector<v1::ExecuteRequest> Good(uint64_t id) const {
    std::vector<v1::ExecuteRequest> out(4);
    for (v1::ExecuteRequest& r : out) r.set_op_id(id++);
    out[0].mutable_put();
    out[0].set_data(graph_);
    for (const uint64_t handle : {1, 2}) {
      out[handle].mutable_alloc()->set_handle(handle);
      out[handle].mutable_alloc()->set_bytes(16);
      out[3].mutable_run()->add_handles(handle);
    }
    out[3].mutable_run()->set_hash(hash_);
    return out;
  }
  v1::ExecuteRequest Next(uint64_t id) {
    v1::ExecuteRequest r;
    r.set_op_id(id);
    switch (Below(8)) {
      case 0:
        Alloc(r.mutable_alloc());
        break;
      case 1:
        r.mutable_write()->set_handle(Handle());
        r.mutable_write()->set_offset(Number());
        r.set_data("some bytes");
        break;
      case 2:
        r.mutable_read()->set_handle(Handle());
        r.mutable_read()->set_offset(Number());
        r.mutable_read()->set_bytes(Number());
        break;
      case 3:
        r.mutable_free()->add_handles(Handle());
        break;
      case 4:
        r.mutable_put()->set_compile(Below(2) == 0);
        r.set_data(Below(2) == 0 ? "\x08\x01\x12\x02\x08\x02" : graph_);
        break;
      case 5:
      case 6:
        Run(r.mutable_run());
        break;
      default:
        r.mutable_sync();
    }
    return r;
  }

 private:
  template <typename T, size_t N>
  T OneOf(const T (&items)[N]) {
    return items[Below(N)];
  }
  uint64_t Handle() { return Below(4); }
  uint64_t Number() {
    constexpr uint64_t kEnds[] = {0, INT64_MAX, uint64_t{1} << 63, UINT64_MAX};
    return Below(3) == 0 ? OneOf(kEnds) : Below(99);
  }
  const char* Device() {
    constexpr const char* kNames[] = {"", "CPU:0", "CPU:1", "DISK:data", "CPU:-1", "\n%s"};
    return OneOf(kNames);
  }
  void Alloc(v1::Alloc* alloc) {
    constexpr const char* kPaths[] = {"digits", "new", "..", "/", "digits/x", "\x01"};
    alloc->set_handle(Handle());
    alloc->set_bytes(Number());
    alloc->set_device(Device());
    if (Below(2) == 0) return;
    alloc->set_path(OneOf(kPaths));
    alloc->set_file_offset(Number());
    alloc->set_mode(static_cast<v1::FileMode>(Below(5)));
  }
  void Run(v1::Run* run) {
    run->set_hash(Below(8) == 0 ? "hash" : hash_);
    for (uint64_t n = Below(4) == 0 ? Below(4) : 2; n > 0; --n) run->add_handles(Handle());
    for (uint64_t n = Below(3); n > 0; --n) run->add_devices(Device());
    for (uint64_t n = Below(4) / 2; n > 0; --n) {
      v1::Variable* variable = run->add_variables();
      variable->set_id(static_cast<int64_t>(Number()));
      variable->set_value(static_cast<int64_t>(Number()));
    }
    run->set_quiet(Below(4) == 0);
    run->set_trace(Below(4) == 0);
  }

  std::mt19937_64 random_;
  const FrozenGraph doubled_ = DoubleGraph(4);
  const std::string graph_ = GraphBytes(doubled_.root());
  const std::string hash_ = std::string(ContentHash(doubled_.root()).view());
};

// Protobuf makes objects of a head that take many times its bytes.
TEST_F(DaemonTest, AHeadHasALimitAndDataDoesNotCount) {
  Start({"--head-bytes", "4096"});
  v1::ExecuteRequest alloc, write, frees;
  alloc.set_op_id(2);
  alloc.mutable_alloc()->set_handle(1);
  alloc.mutable_alloc()->set_bytes(100'000);
  write.set_op_id(3);
  write.mutable_write()->set_handle(1);
  write.set_data(std::string(100'000, 'w'));
  frees.set_op_id(4);
  const auto run = [&](int handles) {
    frees.mutable_free()->clear_handles();
    for (int i = 0; i < handles; ++i) frees.mutable_free()->add_handles(1000);  // two bytes each
    return RawStream(connection_->channel(), {Open().SerializeAsString(), alloc.SerializeAsString(),
                                              write.SerializeAsString(), frees.SerializeAsString()})
        .Wait();
  };
  EXPECT_TRUE(run(2000).ok());
  const grpc::Status status = run(2100);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(),
            StrCat("a message of ", frees.ByteSizeLong(),
                   " bytes beside its data; the limit is 4096; raise --head-bytes"));
}

TEST_F(DaemonTest, RandomMessagesDoNoHarm) {
  const TemporaryDirectory directory;
  std::ofstream(directory.path() / "digits") << "0123456789";
  Start({"--cpu-devices", "2", "--disk-root", StrCat("data=", directory.path().string()),
         "--disk-growth", "1000"});
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  RandomRequests random(seed);
  for (int round = 0; round < 150; ++round) {
    std::vector<std::string> messages = {Open().SerializeAsString()};
    for (const auto& good : random.Good(2)) messages.push_back(good.SerializeAsString());
    for (uint64_t id = 6; id < 20; ++id) {
      std::string message = random.Next(id).SerializeAsString();
      if (random.Below(8) == 0) {
        message[random.Below(message.size())] = static_cast<char>(random.Below(256));
      }
      messages.push_back(message);
    }
    RawStream(connection_->channel(), messages).Wait();
  }
  EXPECT_TRUE(BecomesZero("telegrad_sessions"));
  EXPECT_TRUE(BecomesZero("telegrad_buffers"));
  EXPECT_GT(Stat("telegrad_kernel_launches_total"), 0) << "good runs run";
}

TEST_F(DaemonTest, ClientThatDisappearsLeavesNothing) {
  {
    const std::vector<uint8_t> data(8 << 20);
    std::vector<uint8_t> back(8 << 20);
    const auto connection = Connect(address_);
    const auto session = *connection->OpenSession();
    for (int i = 0; i < 10; ++i) {
      const uint64_t handle = session->NewHandle();
      session->Alloc(handle, 8 << 20);
      session->Write(handle, 0, Bytes(data));
    }
    ASSERT_TRUE(session->Sync().Get().ok());
    EXPECT_EQ(Stat("telegrad_buffer_bytes"), 10 * (8 << 20));
    session->Read(1, 0, Writable(back));  // and goes while it is being answered
  }
  for (const char* name : {"telegrad_sessions", "telegrad_buffers", "telegrad_buffer_bytes",
                           "telegrad_staged_bytes", "telegrad_device_memory_used_bytes"}) {
    EXPECT_TRUE(BecomesZero(name)) << name;
  }
}

TEST_F(DaemonTest, HelloAgreesOnVersionsOrSaysBoth) {
  const auto stub = v1::Session::NewStub(connection_->channel());
  v1::HelloRequest request;
  v1::HelloResponse response;
  request.mutable_protocol()->set_min(7);
  request.mutable_protocol()->set_max(9);
  grpc::ClientContext context;
  const grpc::Status status = stub->Hello(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("the client supports 7 to 9, this server 1 to 1"));
}

}  // namespace
}  // namespace telegrad
