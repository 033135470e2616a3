// Import as an operation of a session: its place in the order, what it leaves behind when it fails,
// and where the file may lie. What reads files is a fake here: a file "abcd" is a graph that copies
// with one weight for each of its bytes.
#include <filesystem>
#include <fstream>

#include "devices/disk/disk_device.h"
#include "engine/base/status.h"
#include "tests/fakes/temporary_directory.h"
#include "tests/server/session_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<ImportedModel> OneWeightForEachByte(std::string_view file, Budget* budget) {
  if (file.starts_with("bad")) return InvalidArgument("a bad file");
  TG_RETURN_IF_ERROR(budget->SpendNodes(static_cast<int64_t>(file.size())));
  ImportedModel out;
  const FrozenGraph graph = CopyGraph(1);
  out.graph = {graph, ContentHash(graph.root())};
  out.graph_bytes = 100;
  out.slot_bytes = 100;
  out.slots.push_back({.role = ImportedSlot::Role::kInput, .name = "x"});
  out.contents.push_back({});
  for (size_t i = 0; i < file.size(); ++i) {
    out.slots.push_back({.role = ImportedSlot::Role::kWeight,
                         .name = StrCat("w", i),
                         .model_names = {},
                         .dtype = DType::kUInt8,
                         .shape = {1},
                         .bytes = 1});
    out.contents.push_back(file.substr(i, 1));
  }
  return out;
}

class SessionImportTest : public SessionTest {
 protected:
  uint64_t Import(std::string file, uint64_t first_handle, bool compile = false) {
    ImportOp op{.decode = &OneWeightForEachByte,
                .payload = std::make_unique<StringPayload>(std::move(file)),
                .first_handle = first_handle,
                .compile = compile};
    return Submit(std::move(op));
  }
  uint64_t ImportFrom(uint64_t handle, uint64_t bytes, uint64_t first_handle) {
    return Submit(ImportOp{.decode = &OneWeightForEachByte,
                           .payload = nullptr,
                           .handle = handle,
                           .bytes = bytes,
                           .first_handle = first_handle});
  }
  // What the session and its tenant own.
  struct Owned {
    int64_t buffers, bytes, graphs, memory;
    friend bool operator==(const Owned&, const Owned&) = default;
  };
  Owned Now() {
    return {metrics_.count(Metric::kBuffers), metrics_.count(Metric::kBufferBytes),
            metrics_.count(Metric::kGraphs), device_->memory_used()};
  }
};

TEST_F(SessionImportTest, MakesFilledBuffersAndAGraph) {
  const Answer answer = sink_->Take(Import("abc", 10));
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  const auto& result = As<ImportResult>(answer);
  ASSERT_EQ(result.slots->size(), 4u);
  EXPECT_EQ((*result.slots)[0].handle, 0u) << "of an input";
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ((*result.slots)[i + 1].handle, 10 + i);
    EXPECT_EQ(Bytes(Read(10 + i, 1)), std::string(1, static_cast<char>('a' + i)));
  }
  const Answer has = sink_->Take(Submit(HasOp{std::string(result.hash.view())}));
  EXPECT_TRUE(As<HasResult>(has).has);
  EXPECT_EQ(metrics_.count(Metric::kImports), 1);
  EXPECT_EQ(engine_.compiled, 0);
  EXPECT_TRUE(sink_->Take(Import("d", 20, /*compile=*/true)).status.ok());
  EXPECT_EQ(engine_.compiled, 1);
}

TEST_F(SessionImportTest, ReadsABufferInItsTurn) {
  Put(1);
  Alloc(1, 4);
  Alloc(2, 4);
  Write(2, "wxyz");
  engine_.gate.Close();
  Run(1, 2);
  const uint64_t import = ImportFrom(1, 3, 10);
  Write(1, "----");  // waits for the import
  const uint64_t weight = Read(12, 1);
  EXPECT_EQ(metrics_.count(Metric::kImports), 0) << "the run has not written it yet";
  engine_.gate.Open();
  ASSERT_TRUE(StatusOf(import).ok()) << StatusOf(import);
  EXPECT_EQ(Bytes(weight), "y");
  EXPECT_EQ(Bytes(Read(1, 4)), "----");
}

TEST_F(SessionImportTest, InheritsTheFailureOfWhatWroteItsFile) {
  Put(1);
  Alloc(1, 4);
  Alloc(2, 4);
  ASSERT_TRUE(Sync().ok());
  const Owned before = Now();
  engine_.gate.Close();
  Run(1, 2);
  const uint64_t import = ImportFrom(1, 4, 10);
  engine_.gate.Open(absl::DataLossError("the run failed"));
  const absl::Status status = StatusOf(import);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_TRUE(absl::IsNotFound(StatusOf(Read(10, 1))));
  EXPECT_EQ(Now(), before);
}

TEST_F(SessionImportTest, AFailureLeavesNothing) {
  Alloc(12, 5);
  ASSERT_TRUE(Sync().ok());
  const Owned before = Now();
  const auto fails = [&](uint64_t id, absl::StatusCode code, std::string_view words) {
    const absl::Status status = StatusOf(id);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(status.ToString(), HasSubstr(std::string(words)));
    EXPECT_EQ(Now(), before) << status;
    for (const uint64_t handle : {10, 11, 13}) {
      EXPECT_TRUE(absl::IsNotFound(StatusOf(Read(handle, 1)))) << status;
    }
  };
  constexpr auto kBad = absl::StatusCode::kInvalidArgument;
  constexpr auto kFull = absl::StatusCode::kResourceExhausted;
  fails(Import("bad", 10), kBad, "a bad file");
  fails(Import("abcd", 10), kBad, "import: weight 'w2': handle 12 is in use");
  fails(Import("abcd", 0), kBad, "handle 0 is reserved");
  fails(Import("abcd", UINT64_MAX - 1), kBad, "weight 'w2': handle 0 is reserved");
  fails(Import("", 10), kBad, "expected data or a handle");
  fails(ImportFrom(12, 6, 20), kBad, "import of 6 bytes of handle 12, which has 5");
  fails(ImportFrom(12, 0, 20), kBad, "import of 0 bytes");
  fails(ImportFrom(99, 1, 20), absl::StatusCode::kNotFound, "unknown handle 99");
  fails(Submit(ImportOp{.decode = &OneWeightForEachByte,
                        .payload = std::make_unique<StringPayload>("x"),
                        .handle = 12,
                        .bytes = 1,
                        .first_handle = 20}),
        kBad, "1 bytes of data and handle 12, expected one of the two");
  fails(Submit(ImportOp{.decode = &OneWeightForEachByte,
                        .payload = std::make_unique<StringPayload>("x"),
                        .first_handle = 20,
                        .device = "GPU:7"}),
        absl::StatusCode::kNotFound, "GPU:7");
  env_.limits.handles = 3;
  fails(Import("abcd", 100), kFull, "weight 'w2': this session has 3 buffers");
  env_.limits.handles = 100;
  env_.limits.bytes = 7;
  fails(Import("abcd", 100), kFull, "weight 'w2': handle 102: 1 bytes beside the 7");
  env_.limits.bytes = 1000;
  env_.limits.job.nodes = 3;
  fails(Import("abcd", 100), kFull, "3 nodes");
  env_.limits.job.nodes = 1000;
  env_.limits.job.bytes = 3;
  fails(Import("abcd", 100), kFull, "3 bytes of memory");
  env_.limits.job.bytes = 1000;
  engine_.on_compile = [](Budget*) { return Internal("a compiler's defect"); };
  fails(Import("abc", 100, /*compile=*/true), absl::StatusCode::kInternal, "defect");
  EXPECT_TRUE(StatusOf(Import("abcd", 100)).ok()) << "afterwards it can be had";
}

TEST_F(SessionImportTest, EndsWhenItIsCancelledAndWithItsSession) {
  for (const bool close : {false, true}) {
    std::atomic<bool> begun = false, ended = false;
    ImportOp op{.decode = [&](std::string_view, Budget* budget) -> absl::StatusOr<ImportedModel> {
                  begun = true;
                  while (budget->CheckTime().ok()) {
                  }
                  ended = true;
                  return budget->CheckTime();
                },
                .payload = std::make_unique<StringPayload>("x"),
                .first_handle = 1};
    const uint64_t id = Submit(std::move(op));
    sink_->Await([&] { return begun.load(); });
    if (close) {
      session_->Close();
    } else {
      session_->Cancel(*sink_, ++last_id_, id, id);
      EXPECT_TRUE(absl::IsCancelled(StatusOf(id)));
      EXPECT_TRUE(Sync().ok());
    }
    sink_->Await([&] { return ended.load(); });
  }
}

// A resumable session repeats what it has answered, as far as that is kept.
TEST_F(SessionImportTest, AnswersThatAreTooLongAreNotKept) {
  terms_ = {.id = 1, .token = "t", .resumable = true, .lease_ns = 1, .grace_ns = 1};
  env_.limits.kept_bytes = 250;  // an answer of the fake reader counts 100
  const uint64_t ids[] = {Import("a", 10), Import("b", 20), Import("c", 30)};
  EXPECT_TRUE(StatusOf(ids[2]).ok());
  sink_ = std::make_shared<Sink>();
  session().Attach(sink_, /*id=*/0, OpenResult{}, 0);
  EXPECT_TRUE(StatusOf(ids[0]).ok());
  EXPECT_TRUE(StatusOf(ids[1]).ok());
  EXPECT_TRUE(absl::IsAborted(StatusOf(ids[2])));
  session().Acknowledge(ids[2]);
  const uint64_t again = Import("d", 40);
  EXPECT_TRUE(StatusOf(again).ok());
  sink_ = std::make_shared<Sink>();
  session().Attach(sink_, /*id=*/0, OpenResult{}, 0);
  EXPECT_TRUE(StatusOf(again).ok());
}

TEST_F(SessionImportTest, InlineFilesAreStagedBytes) {
  env_.limits.staged_bytes = 10;
  Put(1);
  Alloc(1, 4);
  Alloc(2, 4);
  engine_.gate.Close();
  Run(1, 2);
  Write(1, "1234");
  Import("abcdefgh", 10);
  EXPECT_TRUE(session().Congested());
  EXPECT_EQ(metrics_.count(Metric::kStagedBytes), 12);
  engine_.gate.Open();
  EXPECT_TRUE(Sync().ok());
  EXPECT_FALSE(session().Congested());
  EXPECT_EQ(metrics_.count(Metric::kStagedBytes), 0);
}

// A file of the server is read through memory of the host, once.
TEST_F(SessionImportTest, ReadsAFileOfADisk) {
  const TemporaryDirectory directory;
  std::ofstream(directory.path() / "model") << "headabc";
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(*OpenCpu({.threads = 1, .memory_limit = 64 << 20}));
  devices.push_back(*OpenDisk({.name = "d", .directory = directory.path(), .growth = 1000}));
  device_ = devices[0].get();
  const auto pool = *DevicePool::Create(std::move(devices));
  env_.devices = pool.get();
  Submit(AllocOp{1, 3, "DISK:d", AllocOp::File{"model", 4, OpenMode::kRead}});
  const uint64_t import = ImportFrom(1, 3, 10);
  ASSERT_TRUE(StatusOf(import).ok()) << StatusOf(import);
  EXPECT_EQ(Bytes(Read(12, 1)), "c");
  EXPECT_EQ(device_->memory_used(), 3 * 64) << "the weights alone";
  std::filesystem::resize_file(directory.path() / "model", 5);
  const absl::Status status = StatusOf(ImportFrom(1, 3, 20));
  EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
  session_->Close();
}

}  // namespace
}  // namespace telegrad
