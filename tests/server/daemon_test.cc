// The real daemon, end to end: started on port 0 and a unix socket, spoken to by the client library
// and by raw gRPC, killed and drained.
#include <fcntl.h>
#include <grpcpp/generic/generic_stub.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "client/cc/connection.h"
#include "client/cc/remote_session.h"
#include "engine/base/status.h"
#include "engine/ir/content_hash.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/client_callback.h"
#include "gtest/gtest.h"
#include "telegrad/v1/compute.grpc.pb.h"
#include "telegrad/v1/graph.pb.h"
#include "telegrad/v1/session.grpc.pb.h"
#include "tests/fakes/temporary_directory.h"
#include "tests/server/process.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using testing::Output;
using testing::Process;
using testing::RunProgram;

// y = x + x, float32.
FrozenGraph Double(int64_t elements) {
  Graph g;
  const int64_t dims[] = {elements};
  const UOp x = g.Param(1, DType::kFloat32, dims);
  const UOp store =
      g.Make(Op::kStore, {g.Param(0, DType::kFloat32, dims), g.Make(Op::kAdd, {x, x})});
  return Freeze(g.Make(Op::kSink, {store}));
}

template <typename T>
std::span<const std::byte> Bytes(const std::vector<T>& v) {
  return std::as_bytes(std::span(v));
}
template <typename T>
std::span<std::byte> Writable(std::vector<T>& v) {
  return std::as_writable_bytes(std::span(v));
}

class DaemonTest : public ::testing::Test {
 protected:
  void SetUp() override { Start({}); }

  void Start(std::vector<std::string> more) {
    socket_ = StrCat(::testing::TempDir(), "telegrad_", getpid(), ".sock");
    std::vector<std::string> args = {
        "--listen",    "127.0.0.1:0",  "--listen",   "unix:" + socket_, "--metrics",
        "127.0.0.1:0", "--cpu-memory", "1073741824", "--log-level",     "off"};
    args.insert(args.end(), more.begin(), more.end());
    daemon_.reset();
    daemon_ = std::make_unique<Process>(TELEGRADD, args);
    metrics_ = daemon_->Line("metrics on http://127.0.0.1:");
    address_ = daemon_->Line("listening on ");
    ASSERT_THAT(address_, HasSubstr("127.0.0.1:"));
    daemon_->ReadOn();
    connection_ = Connect(address_);
    ASSERT_NE(connection_, nullptr);
  }
  static std::shared_ptr<Connection> Connect(const std::string& address) {
    auto connection = Connection::Connect(address);
    EXPECT_TRUE(connection.ok()) << connection.status();
    return connection.ok() ? *connection : nullptr;
  }
  std::unique_ptr<RemoteSession> Session() { return *connection_->OpenSession(); }
  double Stat(const std::string& name) { return connection_->Stats()->at(name); }
  // Waits for a gauge: what a client leaves is freed a moment after it is gone.
  bool BecomesZero(const std::string& name) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (Stat(name) != 0) {
      if (std::chrono::steady_clock::now() > deadline) return false;
    }
    return true;
  }

  std::string socket_, metrics_, address_;
  std::unique_ptr<Process> daemon_;
  std::shared_ptr<Connection> connection_;
};

TEST_F(DaemonTest, RunsAGraphOverTcpAndUnixSocket) {
  for (const std::string& address : {address_, "unix:" + socket_}) {
    const auto connection = Connect(address);
    const auto session = *connection->OpenSession();
    std::vector<float> x(1000), y(1000);
    for (int i = 0; i < 1000; ++i) x[i] = static_cast<float>(i);
    const uint64_t in = session->NewHandle(), out = session->NewHandle();
    session->Alloc(in, 4000);
    session->Alloc(out, 4000);
    session->WriteCopy(in, 0, Bytes(x));
    const FrozenGraph graph = Double(1000);
    const auto put = session->Put(graph.root());
    const uint64_t handles[] = {out, in};
    const auto run = session->Run(ContentHash(graph.root()), handles);
    const auto read = session->Read(out, 0, Writable(y));
    ASSERT_TRUE(put.Get().ok()) << put.Get().status();
    EXPECT_EQ(*put.Get(), ContentHash(graph.root()));
    ASSERT_TRUE(run.Get().ok()) << run.Get().status();
    EXPECT_GE(run.Get()->kernels, 1);
    ASSERT_TRUE(read.Get().ok()) << read.Get().status();
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(y[i], 2.0f * i);
    EXPECT_TRUE(*session->Has(ContentHash(graph.root())).Get());
    const double compiled = Stat("telegrad_kernels_compiled_total");
    EXPECT_TRUE(session->Run(ContentHash(graph.root()), handles).Get()->cached);
    EXPECT_EQ(Stat("telegrad_kernels_compiled_total"), compiled);
    EXPECT_GE(Stat("telegrad_accesses_proved_total"), 2);
    EXPECT_TRUE(session->status().ok()) << session->status();
  }
}

// The sum of the first n elements, n chosen by each run.
TEST_F(DaemonTest, RunsAGraphWithVariables) {
  Graph g;
  const int64_t dims[] = {8}, one[] = {1};
  const UOp n = g.Make(Op::kVar, DType::kVoid, {}, {5, 0, 8, 2});
  const UOp x = g.Param(0, DType::kFloat32, dims);
  const UOp part = g.Make(Op::kShrink, DType::kVoid, {x, n}, {0, -2});
  const UOp sum = g.Make(Op::kReduce, DType::kVoid, {part}, {0, 0});
  const UOp sink = g.Make(Op::kSink, {g.Make(Op::kStore, {g.Param(1, DType::kFloat32, one), sum})});
  ASSERT_TRUE(g.status().ok()) << g.status();

  const auto session = Session();
  const Digest hash = *session->Put(sink, /*compile=*/true).Get();
  session->Alloc(1, 32);
  session->Alloc(2, 4);
  session->WriteCopy(1, 0, Bytes(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}));
  const uint64_t handles[] = {1, 2};
  const auto run = [&](std::vector<VarValue> variables) {
    return session->Run(hash, handles, variables).Get();
  };
  for (const auto& [size, want] : {std::pair(0, 0.0f), {2, 3.0f}, {8, 36.0f}, {2, 3.0f}}) {
    const auto info = run({{5, size}});
    ASSERT_TRUE(info.ok()) << info.status();
    std::vector<float> out(1);
    EXPECT_TRUE(session->Read(2, 0, Writable(out)).Get().ok());
    EXPECT_EQ(out[0], want) << size;
  }
  EXPECT_TRUE(run({{5, 8}})->cached);
  const std::pair<std::vector<VarValue>, std::string> kWrong[] = {
      {{}, "variable 5 has no value, expected one in [0, 8]"},
      {{{5, 3}}, "variable 5 is 3, expected a multiple of 2 in [0, 8]"},
      {{{5, -2}}, "variable 5 is -2, expected a multiple of 2 in [0, 8]"},
      {{{5, 10}}, "variable 5 is 10, expected a multiple of 2 in [0, 8]"},
      {{{5, 2}, {6, 0}}, "variable 6 is none of the graph's"},
  };
  for (const auto& [variables, message] : kWrong) {
    const absl::Status status = run(variables).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
}

TEST_F(DaemonTest, ManyBytesThereAndBack) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const auto session = Session();
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4097}, size_t{65536}, size_t{65537},
                            size_t{1 << 20}, size_t{(3 << 20) + 5}, size_t{40 << 20}}) {
    std::vector<uint8_t> data(size), back(size);
    for (size_t i = 0; i < size; ++i) data[i] = static_cast<uint8_t>(random());
    const uint64_t handle = session->NewHandle();
    session->Alloc(handle, static_cast<int64_t>(size));
    session->Write(handle, 0, Bytes(data));
    EXPECT_TRUE(session->Read(handle, 0, Writable(back)).Get().ok());
    EXPECT_EQ(data, back);
    // A part in the middle, changed while a read of the whole may still be under way.
    if (size > 10) {
      auto whole = session->Read(handle, 0, Writable(back));
      const std::vector<uint8_t> patch = {1, 2, 3};
      session->Write(handle, static_cast<int64_t>(size / 2), Bytes(patch));
      std::vector<uint8_t> part(5);
      EXPECT_TRUE(
          session->Read(handle, static_cast<int64_t>(size / 2 - 1), Writable(part)).Get().ok());
      EXPECT_EQ(data, back);
      EXPECT_EQ(part[1], 1);
      EXPECT_EQ(part[3], 3);
      EXPECT_TRUE(whole.Get().ok());
    }
    session->Free(handle);
  }
  EXPECT_TRUE(session->Sync().Get().ok()) << session->status();
  EXPECT_EQ(Stat("telegrad_buffer_bytes"), 0);
}

TEST_F(DaemonTest, FilesBelowARootAreBuffers) {
  const TemporaryDirectory directory;
  std::ofstream(directory.path() / "digits") << "0123456789";
  Start({"--disk-root", StrCat("data=", directory.path().string()), "--disk-root-readonly",
         StrCat("models=", directory.path().string()), "--disk-growth", "100000000"});
  using Mode = RemoteFile::Mode;
  const auto session = Session();
  const auto read = [&](uint64_t handle, size_t bytes) {
    std::vector<char> out(bytes);
    const absl::Status status = session->Read(handle, 0, Writable(out)).Get().status();
    return status.ok() ? std::string(out.begin(), out.end()) : status.ToString();
  };
  session->AllocFile(1, 4, {"DISK:models", "digits", 3});
  EXPECT_EQ(read(1, 4), "3456");
  session->AllocFile(2, 10, {"DISK:data", "digits", 0, Mode::kWrite});
  session->Write(2, 1, std::as_bytes(std::span("xyz", 3)));
  EXPECT_EQ(read(2, 10), "0xyz456789");
  // A file of many messages, made, written, and read through another name for its device.
  std::vector<uint8_t> data((40 << 20) + 5), back(data.size());
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i * 11 + i / 997);
  session->AllocFile(3, static_cast<int64_t>(data.size()), {"DISK:data", "big", 0, Mode::kCreate});
  session->Write(3, 0, Bytes(data));
  ASSERT_TRUE(session->Sync().Get().ok()) << session->status();
  session->AllocFile(4, static_cast<int64_t>(data.size()), {"DISK:models", "big"});
  EXPECT_TRUE(session->Read(4, 0, Writable(back)).Get().ok());
  EXPECT_TRUE(data == back);
  EXPECT_EQ(std::filesystem::file_size(directory.path() / "big"), data.size());

  const auto fails = [&](const RemoteFile& file, int64_t bytes) {
    const uint64_t handle = session->NewHandle() + 100;
    session->AllocFile(handle, bytes, file);
    session->Sync().Get();
    const absl::Status first = session->TakeStatus();
    EXPECT_EQ(session->Read(handle, 0, {}).Get().status().code(), first.code());
    EXPECT_EQ(session->TakeStatus().code(), first.code());
    return first.code();
  };
  using absl::StatusCode;
  EXPECT_EQ(fails({"DISK:data", "../digits"}, 1), StatusCode::kInvalidArgument);
  EXPECT_EQ(fails({"DISK:data", "/etc/passwd"}, 1), StatusCode::kInvalidArgument);
  EXPECT_EQ(fails({"DISK:data", "none"}, 1), StatusCode::kNotFound);
  EXPECT_EQ(fails({"DISK:data", "digits"}, 11), StatusCode::kOutOfRange);
  EXPECT_EQ(fails({"DISK:data", "digits", -1}, 1), StatusCode::kInvalidArgument);
  EXPECT_EQ(fails({"DISK:data", "more", 0, Mode::kCreate}, 70'000'000),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(fails({"DISK:models", "digits", 0, Mode::kWrite}, 1), StatusCode::kPermissionDenied);
  EXPECT_EQ(fails({"DISK:none", "digits"}, 1), StatusCode::kNotFound);
  EXPECT_EQ(fails({"CPU:0", "digits"}, 1), StatusCode::kUnimplemented);
  // A disk runs no kernels.
  const FrozenGraph doubled = Double(1);
  const auto hash = session->Put(doubled.root()).Get();
  ASSERT_TRUE(hash.ok()) << hash.status();
  session->AllocFile(6, 4, {"DISK:data", "digits"});
  const uint64_t slots[] = {2, 6};
  const absl::Status run = session->Run(*hash, slots).Get().status();
  EXPECT_EQ(run.code(), StatusCode::kUnimplemented) << run;
  EXPECT_THAT(std::string(run.message()), HasSubstr("none"));
  session->AllocFile(5, 10, {"DISK:data", "digits", 0, Mode::kWrite});
  EXPECT_EQ(read(5, 10), "0xyz456789");
  EXPECT_EQ(session->TakeStatus().code(), StatusCode::kUnimplemented);
  // What is opened to be read is not written, and the file's next reader sees no harm.
  session->Write(1, 0, std::as_bytes(std::span("z", 1)));
  session->Sync().Get();
  EXPECT_EQ(session->TakeStatus().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(read(5, 10), "0xyz456789");
}

TEST_F(DaemonTest, ErrorsAreOfTheOperationAndTheSessionGoesOn) {
  const auto session = Session();
  session->Alloc(1, 16);
  session->WriteCopy(7, 0, Bytes(std::vector<int>{1}));
  const absl::Status sync = session->Sync().Get().status();
  EXPECT_TRUE(absl::IsNotFound(sync)) << sync;
  EXPECT_THAT(std::string(sync.message()), HasSubstr("(write): unknown handle 7"));
  EXPECT_EQ(session->TakeStatus(), sync);
  EXPECT_TRUE(session->Sync().Get().ok());

  const uint64_t handles[] = {1, 1};
  EXPECT_TRUE(absl::IsNotFound(session->Run(Digest{}, handles).Get().status()));
  EXPECT_FALSE(*session->Has(Digest{}).Get());
  const auto put = session->PutSerialized("not a graph");
  EXPECT_TRUE(absl::IsInvalidArgument(put.Get().status())) << put.Get().status();
  std::string many;  // more nodes than any graph may have, two bytes each
  for (int i = 0; i < 1'100'000; ++i) many += std::string("\x12\x00", 2);
  EXPECT_TRUE(absl::IsResourceExhausted(session->PutSerialized(many).Get().status()));

  const FrozenGraph graph = Double(1000);
  const Digest hash = *session->Put(graph.root()).Get();
  session->Alloc(2, 4000);
  const uint64_t short_handles[] = {1, 2};
  const absl::Status too_short = session->Run(hash, short_handles).Get().status();
  EXPECT_TRUE(absl::IsInvalidArgument(too_short)) << too_short;
  EXPECT_EQ(session->TakeStatus().code(), absl::StatusCode::kNotFound) << "the first of them";
  session->Alloc(3, 1, "GPU:9");
  EXPECT_TRUE(absl::IsNotFound(session->Sync().Get().status()));
  EXPECT_THAT(std::string(session->TakeStatus().message()), HasSubstr("this server has CPU:0"));
  session->Alloc(4, int64_t{1} << 39);
  EXPECT_TRUE(absl::IsResourceExhausted(session->Sync().Get().status()));
  session->Alloc(5, 4000);
  const uint64_t good[] = {5, 2};
  EXPECT_TRUE(session->Run(hash, good).Get().ok());
}

// The raw method against whatever a client can send. Each stream must end with a status, and the
// daemon go on.
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

TEST_F(DaemonTest, RandomMessagesDoNoHarm) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 150; ++round) {
    std::vector<std::string> messages = {Open().SerializeAsString()};
    for (uint64_t id = 2; id < 12; ++id) {
      v1::ExecuteRequest r;
      r.set_op_id(id);
      const uint64_t handle = random() % 4;
      switch (random() % 7) {
        case 0:
          r.mutable_alloc()->set_handle(handle), r.mutable_alloc()->set_bytes(random() % 99);
          break;
        case 1:
          r.mutable_write()->set_handle(handle), r.set_data("some bytes");
          break;
        case 2:
          r.mutable_read()->set_handle(handle), r.mutable_read()->set_bytes(random() % 99);
          break;
        case 3:
          r.mutable_free()->add_handles(handle);
          break;
        case 4:
          r.mutable_put(), r.set_data("\x08\x01\x12\x02\x08\x02");
          break;
        case 5:
          r.mutable_run()->set_hash(std::string(32, 'h')), r.mutable_run()->add_handles(handle);
          break;
        default:
          r.mutable_sync();
      }
      std::string message = r.SerializeAsString();
      if (random() % 8 == 0) message[random() % message.size()] = static_cast<char>(random());
      messages.push_back(message);
    }
    RawStream(connection_->channel(), messages).Wait();
  }
  EXPECT_TRUE(BecomesZero("telegrad_sessions"));
  EXPECT_TRUE(BecomesZero("telegrad_buffers"));
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

// A client that sends much and reads nothing is held up; the daemon does not collect its answers.
TEST_F(DaemonTest, OtherSessionsGoOnBesideAGreedyOne) {
  std::vector<std::vector<uint8_t>> into(8, std::vector<uint8_t>(64 << 20));
  const auto greedy = Session();
  greedy->Alloc(1, 64 << 20);
  std::vector<Future<Done>> reads;
  for (auto& buffer : into) reads.push_back(greedy->Read(1, 0, Writable(buffer)));
  const auto session = Session();
  std::vector<int> x = {1, 2, 3}, y(3);
  session->Alloc(1, 12);
  session->WriteCopy(1, 0, Bytes(x));
  EXPECT_TRUE(session->Read(1, 0, Writable(y)).Get().ok());
  EXPECT_EQ(x, y);
  for (const auto& read : reads) EXPECT_TRUE(read.Get().ok());
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
  EXPECT_THAT(status.error_message(), HasSubstr("the client speaks 7 to 9, this server 1 to 1"));
}

TEST_F(DaemonTest, HealthAndMetricsPage) {
  grpc::GenericStub stub(connection_->channel());
  grpc::ClientContext context;
  grpc::ByteBuffer request, response;
  const grpc::Slice nothing;
  request = grpc::ByteBuffer(&nothing, 1);
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  grpc::Status status;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request, &response,
                 [&](grpc::Status s) {
                   std::lock_guard lock(mutex);
                   status = s;
                   done = true;
                   changed.notify_all();
                 });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
  ASSERT_TRUE(status.ok()) << status.error_message();
  grpc::Slice slice;
  ASSERT_TRUE(response.DumpToSingleSlice(&slice).ok());
  EXPECT_EQ(std::string(slice.begin(), slice.end()), std::string("\x08\x01", 2)) << "SERVING";

  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(metrics_)));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  const std::string get = "GET /metrics HTTP/1.0\r\n\r\n";
  ASSERT_EQ(write(fd, get.data(), get.size()), static_cast<ssize_t>(get.size()));
  std::string page;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) page.append(buffer, n);
  close(fd);
  const auto stats = connection_->Stats();
  for (const auto& [name, value] : *stats) {
    EXPECT_THAT(page, HasSubstr(StrCat("# HELP ", name, " "))) << name;
  }
}

TEST_F(DaemonTest, SigtermLetsAnIdleSessionEndAndExitsZero) {
  const auto session = Session();
  session->Alloc(1, 8);
  ASSERT_TRUE(session->Sync().Get().ok());
  daemon_->Signal(SIGTERM);
  const Output output = daemon_->Wait();
  EXPECT_EQ(output.exit_code, 0) << output.text;
  const absl::Status after = session->Sync().Get().status();
  EXPECT_TRUE(absl::IsUnavailable(after)) << after;
  const absl::Status nobody = Connection::Connect(address_).status();
  EXPECT_TRUE(absl::IsUnavailable(nobody)) << nobody;
  EXPECT_THAT(std::string(nobody.message()), HasSubstr(address_));
  EXPECT_THAT(std::string(nobody.message()), HasSubstr("telegradd --listen"));
}

TEST_F(DaemonTest, SigtermLetsRunningOperationsEnd) {
  constexpr int64_t kElements = 4 << 20;
  constexpr int kRuns = 50;
  const auto session = Session();
  const uint64_t handles[] = {1, 2};
  for (const uint64_t handle : handles) session->Alloc(handle, 4 * kElements);
  const Digest hash = *session->Put(Double(kElements).root(), /*compile=*/true).Get();
  const double before = Stat("telegrad_operations_total");
  std::vector<Future<RunInfo>> runs;
  for (int i = 0; i < kRuns; ++i) runs.push_back(session->Run(hash, handles));
  while (Stat("telegrad_operations_total") < before + kRuns) {
  }
  daemon_->Signal(SIGTERM);
  for (const auto& run : runs) EXPECT_TRUE(run.Get().ok()) << run.Get().status();
  EXPECT_EQ(daemon_->Wait().exit_code, 0);
}

TEST_F(DaemonTest, KilledDaemonFailsWhatWasUnderWay) {
  const auto session = Session();
  session->Alloc(1, 8);
  ASSERT_TRUE(session->Sync().Get().ok());
  daemon_->Signal(SIGKILL);
  daemon_->Wait();
  const absl::Status status = session->Sync().Get().status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST_F(DaemonTest, LimitsAreFlags) {
  Start({"--max-sessions", "1", "--session-handles", "2"});
  const auto first = Session();
  first->Alloc(1, 8);
  first->Alloc(2, 8);
  first->Alloc(3, 8);
  first->Sync().Get();
  const absl::Status handles = first->TakeStatus();
  EXPECT_TRUE(absl::IsResourceExhausted(handles)) << handles;
  EXPECT_THAT(std::string(handles.message()), HasSubstr("handles is limited to 2"));
  const auto second = Session();
  const absl::Status status = second->Sync().Get().status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("sessions is limited to 1"));
}

TEST_F(DaemonTest, CommandLine) {
  const Output devices = RunProgram(TELEGRAD, {"devices", "--address", address_});
  EXPECT_EQ(devices.exit_code, 0);
  EXPECT_THAT(devices.text, HasSubstr("CPU:0"));
  const Output stats = RunProgram(TELEGRAD, {"stats", "--address=unix:" + socket_});
  EXPECT_EQ(stats.exit_code, 0);
  EXPECT_THAT(stats.text, HasSubstr("telegrad_devices "));
  EXPECT_EQ(RunProgram(TELEGRAD, {"devices", "--address", "127.0.0.1:1"}).exit_code, 3);
  EXPECT_EQ(RunProgram(TELEGRAD, {"devices", "--address", "nonsense"}).exit_code, 2);
  EXPECT_EQ(RunProgram(TELEGRAD, {"nonsense"}).exit_code, 2);
  EXPECT_EQ(RunProgram(TELEGRAD, {"devices", "--nonsense"}).exit_code, 2);
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"--help"}, {"devices", "--help"}, {"stats", "-h"}}) {
    const Output help = RunProgram(TELEGRAD, args);
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_THAT(help.text, HasSubstr("Usage:"));
  }
}

TEST(DaemonFlagsTest, RefusesWhatItShould) {
  const struct {
    std::vector<std::string> args;
    int exit_code;
    std::string text;
  } kCases[] = {
      {{"--listen", "0.0.0.0:0"}, 2, "--insecure-listen-anywhere"},
      {{"--listen", "nonsense"}, 2, "expected HOST:PORT"},
      {{"--listen", "127.0.0.1:99999"}, 2, "expected HOST:PORT"},
      {{"--metrics", "0.0.0.0:0"}, 2, "--insecure-listen-anywhere"},
      {{"--nonsense"}, 2, "unknown flag --nonsense"},
      {{"--drain-seconds"}, 2, "needs a value"},
      {{"--drain-seconds", "soon"}, 2, "not a whole number"},
      {{"--graphs", "0"}, 2, "--graphs: 0 is below 1"},
      {{"--log-level", "loud"}, 2, "--log-level"},
      {{"stray"}, 2, "unexpected argument stray"},
      {{"--help"}, 0, "--drain-seconds N"},
  };
  for (const auto& c : kCases) {
    const Output output = RunProgram(TELEGRADD, c.args);
    EXPECT_EQ(output.exit_code, c.exit_code) << output.text;
    EXPECT_THAT(output.text, HasSubstr(c.text));
  }
}

}  // namespace
}  // namespace telegrad
