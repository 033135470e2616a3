// State slots filled from tensor files, on a real daemon: tensors of every layout in a file arrive
// unchanged, in bounded memory, and a file that is truncated during the upload leaves no half
// tensor.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "client/cc/remote_plan.h"
#include "engine/base/status.h"
#include "engine/frontend/io/byte_sink.h"
#include "engine/frontend/io/dequantize.h"
#include "engine/frontend/io/safetensors.h"
#include "engine/frontend/tensor/builder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fakes/temporary_directory.h"
#include "tests/server/process.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using testing::Process;

class TensorUploadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    daemon_ = std::make_unique<Process>(
        TELEGRADD, std::vector<std::string>{"--listen", "127.0.0.1:0", "--cpu-memory", "1073741824",
                                            "--log-level", "off"});
    const std::string address = daemon_->Line("listening on ");
    daemon_->ReadOn();
    const auto connection = Connection::Connect(address);
    ASSERT_TRUE(connection.ok()) << connection.status();
    auto session = (*connection)->OpenSession();
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
  }

  // A file with one u8 tensor "w" of that many zeros, which take no disk.
  std::string Zeros(const std::string& name, int64_t bytes) {
    const std::string path = (folder_.path() / name).string();
    std::string header =
        StrCat(R"({"w":{"dtype":"U8","shape":[)", bytes, R"(],"data_offsets":[0,)", bytes, "]}}");
    std::ofstream out(path, std::ios::binary);
    const uint64_t length = header.size();
    out.write(reinterpret_cast<const char*>(&length), 8);
    out << header;
    out.close();
    EXPECT_EQ(truncate(path.c_str(), static_cast<off_t>(8 + length) + bytes), 0);
    return path;
  }

  TemporaryDirectory folder_;
  std::unique_ptr<Process> daemon_;
  std::unique_ptr<RemoteSession> session_;
};

// The most memory that this process has had since the last call, in bytes.
int64_t PeakMemory() {
  std::ifstream status("/proc/self/status");
  std::string line;
  int64_t kib = 0;
  while (std::getline(status, line)) {
    if (line.starts_with("VmHWM:")) kib = std::strtoll(line.c_str() + 6, nullptr, 10);
  }
  std::ofstream("/proc/self/clear_refs") << "5";
  return kib << 10;
}

TEST_F(TensorUploadTest, EveryTensorOfEveryFormatArrives) {
  const std::string folder = "tests/data/state/";
  const auto expected = OpenTensorFile(folder + "expected.safetensors");
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const char* name : {"stored.npz", "deflated.npz", "torch.pt", "deflated.pt", "quants.gguf",
                           "expected.safetensors"}) {
    SCOPED_TRACE(name);
    const auto file = OpenTensorFile(folder + name);
    ASSERT_TRUE(file.ok()) << file.status();
    RemoteState state(session_.get());
    state.Preset(*file);
    for (const TensorEntry& entry : (*file)->tensors()) {
      Builder builder;
      StateFromFile(&builder, entry);
      ASSERT_TRUE(state.Buffer(builder.slots()[0]).ok());
    }
    const auto got = state.Download();
    ASSERT_TRUE(got.ok()) << got.status();
    const auto want = (*file)->LoadAll();
    ASSERT_TRUE(want.ok()) << want.status();
    EXPECT_EQ(*got, *want);
  }
}

TEST_F(TensorUploadTest, QuantizedWeightsAreUsedAsTheyLieInTheFile) {
  const auto file = OpenTensorFile("tests/data/state/quants.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  const auto expected = OpenTensorFile("tests/data/state/expected.safetensors");
  ASSERT_TRUE(expected.ok()) << expected.status();
  RemoteState state(session_.get());
  state.Preset(*file);
  Builder builder;
  builder.Output(StateFromFile(&builder, *(*file)->Find("Q6_K")), "weights");
  const auto graph = builder.Finish();
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto plan = RemotePlan::Create(session_.get(), &state, *graph);
  ASSERT_TRUE(plan.ok()) << plan.status();
  (*plan)->Run();
  const auto weights = (*plan)->Read("weights");
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(*weights, *(*expected)->Load("quants.gguf/Q6_K"));
}

TEST_F(TensorUploadTest, TypesAndShapesAreThoseOfTheSlot) {
  const auto file = OpenTensorFile(Zeros("w.safetensors", 8));
  ASSERT_TRUE(file.ok()) << file.status();
  RemoteState state(session_.get());
  state.Preset(*file);
  const Slot slot{"w", DType::kUInt8, {2, 4}, SlotRole::kState, Init{}};
  const absl::Status status = state.Buffer(slot).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("w is u8 [8], expected u8 [2, 4]"));
}

TEST_F(TensorUploadTest, TakesFewChunksOfMemory) {
  constexpr int64_t kBytes = int64_t{256} << 20;
  const std::string path = Zeros("w.safetensors", kBytes);
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(-1, std::ios::end)
      << 'x';
  const auto file = OpenTensorFile(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const int64_t handle = 7;
  session_->Alloc(handle, kBytes);
  ASSERT_TRUE(session_->Sync().Get().ok());
  (void)PeakMemory();
  const int64_t before = PeakMemory();
  session_->Write(handle, 0, (*file)->Open((*file)->tensors()[0]));
  const auto done = session_->Sync().Get();
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_LT(PeakMemory() - before, int64_t{48} << 20);
  char end[2];
  const auto read =
      session_->Read(handle, kBytes - 2, std::as_writable_bytes(std::span(end))).Get();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(std::string_view(end, 2), std::string_view("\0x", 2));
}

TEST_F(TensorUploadTest, FileThatEndsOnTheWayIsAnErrorAndLeavesNoBuffer) {
  constexpr int64_t kBytes = int64_t{5} << 20;
  const std::string path = Zeros("w.safetensors", kBytes);
  const auto file = OpenTensorFile(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(truncate(path.c_str(), kBytes / 2), 0);
  session_->Alloc(1, kBytes);
  session_->Alloc(2, 16);
  session_->Write(1, 0, (*file)->Open((*file)->tensors()[0]));
  const std::vector<std::byte> other(16, std::byte{9});
  session_->WriteCopy(2, 0, other);
  const absl::Status status = session_->Sync().Get().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("(write): " + path + ": 'w': the file ends"));
  EXPECT_EQ(session_->TakeStatus(), status);

  std::vector<std::byte> got(16);
  EXPECT_EQ(session_->Read(1, 0, got).Get().status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(session_->Read(2, 0, got).Get().ok());
  EXPECT_EQ(got, other);
}

}  // namespace
}  // namespace telegrad
