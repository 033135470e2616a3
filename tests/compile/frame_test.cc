// Frames over a socket pair: complete ones, ones that end at any byte, and ones that arrive too
// late.
#include "engine/process/frame.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "engine/compile/worker_protocol.h"

namespace telegrad {
namespace {

class FrameTest : public ::testing::Test {
 protected:
  FrameTest() { Open(); }
  ~FrameTest() override { Close(); }
  void Open() { ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends_), 0); }
  void Close() {
    for (int& end : ends_) {
      if (end >= 0) close(end);
      end = -1;
    }
  }
  // What a reader makes of `bytes` and the end of the stream.
  absl::StatusOr<std::string> ReadOf(std::string_view bytes, size_t max = 1000) {
    Close();
    Open();
    EXPECT_EQ(write(ends_[0], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    close(std::exchange(ends_[0], -1));
    return ReadFrame(ends_[1], max);
  }
  // The bytes of a frame.
  std::string FrameOf(std::string_view payload) {
    Close();
    Open();
    EXPECT_TRUE(WriteFrame(ends_[0], payload).ok());
    std::string bytes(kFrameHeaderBytes + payload.size(), '\0');
    EXPECT_EQ(recv(ends_[1], bytes.data(), bytes.size(), MSG_WAITALL),
              static_cast<ssize_t>(bytes.size()));
    return bytes;
  }

  int ends_[2] = {-1, -1};
};

TEST_F(FrameTest, PayloadsComeBack) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{5'000'000}}) {
    const std::string payload(size, 'p');
    std::thread writer([&] { EXPECT_TRUE(WriteFrame(ends_[0], payload).ok()); });
    const auto read = ReadFrame(ends_[1], size);
    writer.join();
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, payload);
  }
}

TEST_F(FrameTest, EveryChangedByteAndEveryTruncationShows) {
  const std::string frame = FrameOf("some bytes");
  ASSERT_EQ(*ReadOf(frame), "some bytes");
  for (size_t i = 0; i < frame.size(); ++i) {
    for (const int flip : {1, 0x80}) {
      std::string changed = frame;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      EXPECT_FALSE(ReadOf(changed).ok()) << "byte " << i;
    }
    const absl::Status cut = ReadOf(frame.substr(0, i)).status();
    EXPECT_TRUE(absl::IsUnavailable(cut)) << cut << " at " << i;
  }
  EXPECT_TRUE(absl::IsDataLoss(ReadOf(frame, 9).status()));
}

TEST_F(FrameTest, SilenceEndsAtTheDeadline) {
  const auto soon = [] { return std::chrono::steady_clock::now() + std::chrono::milliseconds(5); };
  EXPECT_TRUE(absl::IsDeadlineExceeded(ReadFrame(ends_[1], 10, soon()).status()));
  // More than the socket holds, and nobody reads.
  const std::string large(64 << 20, 'x');
  EXPECT_TRUE(absl::IsDeadlineExceeded(WriteFrame(ends_[0], large, soon())));
}

TEST_F(FrameTest, AWriterSeesThatTheReaderHasGone) {
  close(std::exchange(ends_[1], -1));
  EXPECT_TRUE(absl::IsUnavailable(WriteFrame(ends_[0], "x")));
}

TEST(WorkerProtocol, MessagesComeBackAndNothingElseDecodes) {
  Target target;
  target.arch = "x86-64";
  target.features = "+avx2,+fma";
  target.converts = {DType::kFloat16};
  const ProgramSignature signature{.parameters = {ParameterKind::kBuffer, ParameterKind::kScalar32,
                                                  ParameterKind::kScalar64, ParameterKind::kBegin},
                                   .group = {64, 2, 3},
                                   .local_bytes = 4096};
  const std::string messages[] = {
      Encode(WorkerHello{3, "identity"}),
      Encode(WorkerRequest{7, "k", target, "text"}),
      Encode(WorkerAnswer{8, ProgramImage{"k", "object", signature}}),
      Encode(WorkerAnswer{9, absl::InternalError("why")}),
  };
  EXPECT_EQ(DecodeHello(messages[0])->protocol, 3u);
  EXPECT_EQ(DecodeHello(messages[0])->identity, "identity");
  const auto request = DecodeRequest(messages[1]);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->id, 7u);
  EXPECT_EQ(request->name, "k");
  EXPECT_EQ(request->source, "text");
  EXPECT_EQ(request->target, target);
  EXPECT_EQ(DecodeAnswer(messages[2])->image->binary, "object");
  EXPECT_EQ(DecodeAnswer(messages[2])->image->signature, signature);
  EXPECT_EQ(DecodeAnswer(messages[3])->image.status(), absl::InternalError("why"));
  const auto decodes = [](int i, std::string_view bytes) {
    if (i == 0) return DecodeHello(bytes).ok();
    return i == 1 ? DecodeRequest(bytes).ok() : DecodeAnswer(bytes).ok();
  };
  for (int i = 0; i < 4; ++i) {
    for (size_t size = 0; size <= messages[i].size() + 1; ++size) {
      std::string bytes = messages[i] + "x";
      bytes.resize(size);
      EXPECT_EQ(decodes(i, bytes), size == messages[i].size()) << i << " at " << size;
    }
  }
}

TEST(Target, KeysReadBack) {
  Target target;
  target.arch = "x86-64";
  target.cpu = "znver4";
  target.features = "+avx2,+fma";
  target.vector_bytes = 64;
  target.vector_registers = 32;
  target.vector_rate = 1;
  target.threads = 3;
  target.cache_bytes = int64_t{3} << 40;
  target.stream_bytes = 5;
  target.computes = {DType::kFloat32};
  target.converts = {DType::kFloat16};
  target.warp = 32;
  target.group_threads = 1024;
  target.local_bytes = 49152;
  target.stages = false;
  target.vector_lanes = 16;
  target.align = 64;
  target.index_bits = 32;
  target.unit_cycles = 9;
  target.winograd = true;
  target.matrix = MatrixUnit::kMfma;
  target.costs = CostRow::kAmd;
  target.dots = true;
  target.exp2 = true;
  target.first_level_bytes = 48 << 10;
  const std::string key = target.Key();
  ASSERT_TRUE(Target::FromKey(key).has_value());
  EXPECT_EQ(*Target::FromKey(key), target);
  for (const std::string& bad :
       {std::string(), key + "|1", key + " ", key.substr(0, key.size() - 1) + "x",
        key.substr(0, key.rfind('|')), key.substr(key.find('|') + 1)}) {
    EXPECT_FALSE(Target::FromKey(bad).has_value()) << bad;
  }
  std::string beyond = key;
  beyond[key.rfind('|') - 1] += 1;  // neither true nor false
  EXPECT_FALSE(Target::FromKey(beyond).has_value());
  Target no_row = target;
  no_row.costs = static_cast<CostRow>(static_cast<int>(kLastCostRow) + 1);
  EXPECT_FALSE(Target::FromKey(no_row.Key()).has_value());
  target.index_bits = 16;
  EXPECT_FALSE(Target::FromKey(target.Key()).has_value());
  target.index_bits = 64;
  Target narrow = target;
  narrow.vector_bytes = 2;  // no element of f32
  EXPECT_FALSE(Target::FromKey(narrow.Key()).has_value());
  target.threads = 0;
  EXPECT_FALSE(Target::FromKey(target.Key()).has_value());
}

}  // namespace
}  // namespace telegrad
