// Files below the roots that the daemon's operator names, as buffers of a client.
#include <filesystem>
#include <fstream>
#include <numeric>

#include "tests/fakes/temporary_directory.h"
#include "tests/server/daemon_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

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
  // A disk runs no programs.
  const FrozenGraph doubled = DoubleGraph(1);
  const auto hash = session->Put(doubled.root()).Get();
  ASSERT_TRUE(hash.ok()) << hash.status();
  session->AllocFile(6, 4, {"DISK:data", "digits"});
  const uint64_t slots[] = {2, 6};
  const absl::Status run = session->Run(*hash, slots).Get().status();
  EXPECT_EQ(run.code(), StatusCode::kUnimplemented) << run;
  EXPECT_THAT(std::string(run.message()), HasSubstr("DISK:data runs no programs, but the graph has "
                                                    "it compute add of [1]; copy to a device"));
  session->AllocFile(5, 10, {"DISK:data", "digits", 0, Mode::kWrite});
  EXPECT_EQ(read(5, 10), "0xyz456789");
  EXPECT_EQ(session->TakeStatus().code(), StatusCode::kUnimplemented);
  // What is opened to be read is not written, and the file's next reader sees no harm.
  session->Write(1, 0, std::as_bytes(std::span("z", 1)));
  session->Sync().Get();
  EXPECT_EQ(session->TakeStatus().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(read(5, 10), "0xyz456789");
}

// A graph reads a file where it lies and copies it to where it computes, and its result to a file.
TEST_F(DaemonTest, GraphsCopyFromFilesAndToThem) {
  const TemporaryDirectory directory;
  std::vector<float> x(3000), y(1000), z(1000);
  std::iota(x.begin(), x.end(), 0.0f);
  std::ofstream(directory.path() / "x", std::ios::binary)
      .write(reinterpret_cast<const char*>(x.data()), 12'000);
  Start({"--disk-root", StrCat("data=", directory.path().string())});
  // Slot 0 is on device 1, a disk; slot 2 as well.
  Graph g;
  const auto copy = [&](UOp u, int64_t device) {
    return g.Make(Op::kCopy, DType::kVoid, {u}, {device});
  };
  const Shape dims{1000};
  const UOp part =
      g.Make(Op::kShrink, {g.Param(0, DType::kFloat32, Shape{3000}, 1)}, Shape{1000, 1000});
  const UOp doubled = g.Make(Op::kAdd, {copy(part, 0), copy(part, 0)});
  const UOp here = g.Make(Op::kStore, {g.Param(1, DType::kFloat32, dims), doubled});
  const UOp there = g.Make(Op::kStore, {g.Param(2, DType::kFloat32, dims, 1), copy(doubled, 1)});
  const FrozenGraph graph = Freeze(g.Make(Op::kSink, {here, there}));
  ASSERT_TRUE(g.status().ok()) << g.status();

  const auto session = Session();
  session->AllocFile(1, 12'000, {"DISK:data", "x"});
  session->Alloc(2, 4000);
  session->AllocFile(3, 4000, {"DISK:data", "z", 0, RemoteFile::Mode::kCreate});
  const auto hash = session->Put(graph.root()).Get();
  ASSERT_TRUE(hash.ok()) << hash.status();
  const uint64_t handles[] = {1, 2, 3};
  const auto run = session->Run(*hash, handles);
  ASSERT_TRUE(run.Get().ok()) << run.Get().status();
  EXPECT_TRUE(session->Read(2, 0, Writable(y)).Get().ok());
  EXPECT_TRUE(session->Read(3, 0, Writable(z)).Get().ok());
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(y[i], 2 * x[1000 + i]);
  EXPECT_EQ(y, z);
}

}  // namespace
}  // namespace telegrad
