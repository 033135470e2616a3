// Files below the roots that the daemon's operator names, as buffers of a client.
#include <filesystem>
#include <fstream>

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
  // A disk runs no kernels.
  const FrozenGraph doubled = DoubleGraph(1);
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

}  // namespace
}  // namespace telegrad
