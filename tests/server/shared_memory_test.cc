// Large writes and reads through memory that is shared with the daemon.
#include "client/cc/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "engine/net/tcp.h"
#include "server/data/guarded_copy.h"
#include "server/data/kept_mappings.h"
#include "server/data/sealed_file.h"
#include "server/data/stream_copy.h"
#include "tests/server/daemon_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

UniqueFd Memory(int64_t bytes, int seals) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(posix_fallocate(fd.get(), 0, bytes), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

absl::Status Opened(UniqueFd fd, uint64_t offset = 0, uint64_t bytes = 1, bool write = true) {
  return SealedFile::Open(std::move(fd), offset, bytes, write, {}).status();
}

TEST(SealedFileTest, OnlySealedMemoryIsTaken) {
  EXPECT_TRUE(Opened(Memory(100, kSeals)).ok());
  for (const int missing : {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL}) {
    EXPECT_EQ(Opened(Memory(100, kSeals & ~missing)).code(), Code::kInvalidArgument) << missing;
  }
  EXPECT_EQ(Opened(Memory(100, 0)).code(), Code::kInvalidArgument);
  EXPECT_EQ(Opened(UniqueFd(open("/dev/zero", O_RDWR))).code(), Code::kInvalidArgument);
  EXPECT_EQ(Opened(UniqueFd(open("/proc/self/exe", O_RDONLY))).code(), Code::kInvalidArgument);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(Opened(UniqueFd(ends[0])).code(), Code::kInvalidArgument);
  EXPECT_EQ(Opened(UniqueFd(ends[1])).code(), Code::kInvalidArgument);
}

TEST(SealedFileTest, APartIsInsideOfTheWhole) {
  const auto of = [](uint64_t offset, uint64_t bytes) {
    return Opened(Memory(100, kSeals), offset, bytes).code();
  };
  EXPECT_EQ(of(0, 100), Code::kOk);
  EXPECT_EQ(of(100, 0), Code::kOk);
  EXPECT_EQ(of(0, 101), Code::kInvalidArgument);
  EXPECT_EQ(of(101, 0), Code::kInvalidArgument);
  EXPECT_EQ(of(50, UINT64_MAX), Code::kInvalidArgument);
  EXPECT_EQ(of(UINT64_MAX, 1), Code::kInvalidArgument);
}

TEST(SealedFileTest, WhatMayNotBeWrittenIsNot) {
  EXPECT_EQ(Opened(Memory(100, kSeals | F_SEAL_WRITE), 0, 1, true).code(), Code::kInvalidArgument);
  EXPECT_TRUE(Opened(Memory(100, kSeals | F_SEAL_WRITE), 0, 1, false).ok());
  const UniqueFd whole = Memory(100, kSeals);
  const std::string path = StrCat("/proc/self/fd/", whole.get());
  EXPECT_EQ(Opened(UniqueFd(open(path.c_str(), O_RDONLY)), 0, 1, true).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(Opened(UniqueFd(open(path.c_str(), O_WRONLY)), 0, 1, false).code(),
            Code::kInvalidArgument);
}

// The daemon would have to find the pages in its own share of the memory.
TEST(SealedFileTest, WhatIsToBeWrittenHasItsPages) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(fd.get(), 1 << 20), 0);
  ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, kSeals), 0);
  const absl::Status status = Opened(UniqueFd(dup(fd.get())));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("posix_fallocate"));
  EXPECT_TRUE(Opened(UniqueFd(dup(fd.get())), 0, 1, /*write=*/false).ok());
  ASSERT_EQ(posix_fallocate(fd.get(), 0, 1 << 20), 0);
  EXPECT_TRUE(Opened(std::move(fd)).ok());
}

// Its owner may take the pages away; that is zeros here, and no signal.
TEST(SealedFileTest, PagesThatAreTakenOutAreNotPutBack) {
  const int64_t bytes = 1 << 20;
  UniqueFd fd = Memory(bytes, kSeals);
  const auto file = SealedFile::Open(UniqueFd(dup(fd.get())), 0, bytes, /*write=*/true, {});
  ASSERT_TRUE(file.ok()) << file.status();
  const std::vector<std::byte> piece(4096);
  EXPECT_TRUE((*file)->Write(0, piece).ok());
  ASSERT_EQ(fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, bytes), 0);
  const absl::Status status = (*file)->Write(4096, piece);
  EXPECT_EQ(status.code(), Code::kDataLoss) << status;
}

TEST(SealedFileTest, HolesAreZeros) {
  UniqueFd fd = Memory(1 << 20, kSeals);
  const UniqueFd owner(dup(fd.get()));
  const auto file = SealedFile::Open(std::move(fd), 0, 1 << 20, true, {});
  ASSERT_TRUE(file.ok());
  std::vector<std::byte> bytes(1 << 20, std::byte{7});
  ASSERT_TRUE((*file)->Write(0, bytes).ok());
  ASSERT_EQ(fallocate(owner.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 19), 0);
  ASSERT_TRUE((*file)->Read(0, bytes).ok());
  EXPECT_EQ(bytes[(1 << 19) - 1], std::byte{0});
  EXPECT_EQ(bytes[1 << 19], std::byte{7});
  // Reading has made no pages in their place.
  struct stat stat;
  ASSERT_EQ(fstat(owner.get(), &stat), 0);
  EXPECT_EQ(stat.st_blocks * 512, 1 << 19);
}

TEST(StreamCopyTest, AnyPlaceAndLength) {
  std::mt19937_64 random(20261124);
  constexpr size_t kRoom = kStreamedBytes + (1 << 18), kEdge = 128;
  std::vector<uint8_t> from(kRoom), expected(kRoom), to(kRoom);
  for (uint8_t& byte : from) byte = static_cast<uint8_t>(random());
  for (int round = 0; round < 40; ++round) {
    const size_t in = random() % kEdge, out = random() % kEdge;
    const size_t bytes = kStreamedBytes - kEdge + random() % (kRoom - kStreamedBytes - kEdge);
    std::fill(expected.begin(), expected.end(), 0);
    std::fill(to.begin(), to.end(), 0);
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(in), bytes,
                expected.begin() + static_cast<std::ptrdiff_t>(out));
    StreamCopy(to.data() + out, from.data() + in, bytes);
    ASSERT_TRUE(to == expected) << "in " << in << ", out " << out << ", bytes " << bytes;
  }
}

// Mappings that only the test removes.
class KeptMappingsTest : public ::testing::Test {
 protected:
  static constexpr int64_t kBytes = 1 << 20;

  absl::StatusOr<std::shared_ptr<const SealedFile>> Open(const UniqueFd& fd,
                                                         uint64_t bytes = kBytes,
                                                         bool write = true) {
    auto paid = kept_->Pay(account_);
    if (!paid.ok()) return paid.status();
    return SealedFile::Open(UniqueFd(dup(fd.get())), 0, bytes, write, *std::move(paid), kept_,
                            account_.get());
  }
  // Writes the first `bytes` of the file, all of them in one transfer.
  void Fill(const UniqueFd& fd, uint8_t value, uint64_t bytes = kBytes) {
    const auto file = Open(fd, bytes);
    ASSERT_TRUE(file.ok()) << file.status();
    const std::vector<std::byte> values(bytes, std::byte{value});
    ASSERT_TRUE((*file)->Write(0, values).ok());
  }
  // The value of all bytes of the file; nullopt if they differ.
  static std::optional<uint8_t> ValueOf(const UniqueFd& fd) {
    std::vector<uint8_t> all(kBytes);
    EXPECT_EQ(pread(fd.get(), all.data(), all.size(), 0), kBytes);
    for (const uint8_t byte : all) {
      if (byte != all[0]) return std::nullopt;
    }
    return all[0];
  }

  const std::shared_ptr<Account> account_ = std::make_shared<Account>("shared_files", 100, "");
  const std::shared_ptr<KeptMappings> kept_ =
      std::make_shared<KeptMappings>(std::chrono::hours(1000));
};

TEST_F(KeptMappingsTest, UsedAgainByTheNextTransferOfTheSamePart) {
  const UniqueFd fd = Memory(kBytes, kSeals);
  Fill(fd, 1);
  EXPECT_EQ(kept_->size(), 1u);
  EXPECT_EQ(account_->used(), 1);
  {
    const auto again = Open(fd, kBytes, /*write=*/false);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(kept_->size(), 0u);  // it has it
    EXPECT_EQ(account_->used(), 1);
    // A second one at the same time has one of its own.
    const auto beside = Open(fd);
    ASSERT_TRUE(beside.ok());
    std::vector<std::byte> bytes(kBytes);
    ASSERT_TRUE((*again)->Read(0, bytes).ok());
    EXPECT_EQ(bytes[kBytes - 1], std::byte{1});
  }
  EXPECT_EQ(kept_->size(), 1u);
  Fill(fd, 2);
  EXPECT_EQ(kept_->size(), 1u);
  EXPECT_EQ(ValueOf(fd), 2);
  // Another file, another part.
  const UniqueFd other = Memory(kBytes, kSeals);
  Fill(other, 3);
  EXPECT_EQ(kept_->size(), 2u);
  Fill(fd, 4, kBytes / 2);
  EXPECT_EQ(kept_->size(), 3u);
  EXPECT_EQ(ValueOf(other), 3);
  EXPECT_EQ(account_->used(), 3);
}

TEST_F(KeptMappingsTest, RemovedWhenTheyAreNotUsed) {
  const UniqueFd fd = Memory(kBytes, kSeals);
  Fill(fd, 1);
  kept_->Sweep();
  EXPECT_EQ(kept_->size(), 1u);
  kept_->Sweep();
  EXPECT_EQ(kept_->size(), 0u);
  EXPECT_EQ(account_->used(), 0);
}

TEST_F(KeptMappingsTest, ALimitedNumberIsKept) {
  std::vector<UniqueFd> files;
  for (size_t i = 0; i < KeptMappings::kMost + 3; ++i) {
    files.push_back(Memory(kBytes, kSeals));
    Fill(files.back(), static_cast<uint8_t>(i));
  }
  EXPECT_EQ(kept_->size(), KeptMappings::kMost);
  EXPECT_EQ(account_->used(), static_cast<int64_t>(KeptMappings::kMost));
  // The oldest ones have gone.
  const auto used = Open(files.back());
  EXPECT_EQ(kept_->size(), KeptMappings::kMost - 1);
  const auto gone = Open(files.front());
  EXPECT_EQ(kept_->size(), KeptMappings::kMost - 1);
}

TEST_F(KeptMappingsTest, WhatEndedEarlyIsNotKept) {
  const UniqueFd fd = Memory(kBytes, kSeals);
  {
    const auto file = Open(fd);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->Write(0, std::vector<std::byte>(kBytes / 2)).ok());
  }
  EXPECT_EQ(kept_->size(), 0u);
  EXPECT_EQ(account_->used(), 0);
}

TEST_F(KeptMappingsTest, NobodyGetsAnothersAndTheyTakeNoRoomFromTransfers) {
  const UniqueFd fd = Memory(kBytes, kSeals);
  Fill(fd, 1);
  const auto stranger = std::make_shared<Account>("shared_files", 0, "");
  EXPECT_EQ(kept_->Pay(stranger).status().code(), Code::kResourceExhausted);
  EXPECT_TRUE(
      SealedFile::Open(UniqueFd(dup(fd.get())), 0, kBytes, true, {}, kept_, stranger.get()).ok());
  EXPECT_EQ(kept_->size(), 1u);
  account_->SetLimit(1, "");
  const UniqueFd other = Memory(kBytes, kSeals);
  const auto file = Open(other);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(kept_->size(), 0u);
  EXPECT_EQ(Open(fd).status().code(), Code::kResourceExhausted);
}

// A file that has no seals can lose its pages under a copy.
TEST(GuardedCopyTest, PagesThatAreGoneAreAnErrorAndNoSignal) {
  constexpr size_t kBytes = 1 << 20, kKept = 1 << 18;
  const UniqueFd fd = Memory(kBytes, 0);
  std::vector<char> ours(kBytes, 7);
  for (const bool write : {true, false}) {
    ASSERT_EQ(ftruncate(fd.get(), kBytes), 0);
    void* const mapping = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    ASSERT_NE(mapping, MAP_FAILED);
    const auto copy = [&](size_t bytes) {
      return write ? GuardedCopy(mapping, ours.data(), bytes, mapping)
                   : GuardedCopy(ours.data(), mapping, bytes, mapping);
    };
    EXPECT_TRUE(copy(kBytes));
    ASSERT_EQ(ftruncate(fd.get(), kKept), 0);
    EXPECT_TRUE(copy(kKept));
    EXPECT_FALSE(copy(kBytes));
    EXPECT_EQ(munmap(mapping, kBytes), 0);
  }
  EXPECT_EQ(ours[kKept - 1], 7);
  EXPECT_EQ(ours[kKept], 0);
}

TEST(GuardedCopyDeathTest, OtherBusErrorsEndTheProcess) {
  const UniqueFd fd = Memory(1 << 16, 0);
  auto* const mapping =
      static_cast<char*>(mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0));
  char byte = 1;
  EXPECT_TRUE(GuardedCopy(mapping, &byte, 1, mapping));
  ASSERT_EQ(ftruncate(fd.get(), 0), 0);
  // By the signal, or by who handles it for a sanitizer.
  const auto failed = [](int status) { return !WIFEXITED(status) || WEXITSTATUS(status) != 0; };
  EXPECT_EXIT((*const_cast<volatile char*>(mapping) = 1, std::exit(0)), failed, "");
  munmap(mapping, 1 << 16);
}

class SharedMemoryTest : public DaemonTest {
 protected:
  void SetUp() override {
    local_ = StrCat(::testing::TempDir(), "local_", getpid());
    options_.credentials.local_socket = local_;
    Start({"--local-socket", local_, "--local-memory"});
  }
  std::string local_;
};

TEST_F(SharedMemoryTest, ThereAndBack) {
  constexpr size_t kBytes = 20'000'001;
  auto session = Session();
  auto out = *SharedMemory::Create(kBytes), in = *SharedMemory::Create(kBytes);
  for (size_t i = 0; i < kBytes; ++i) out->bytes()[i] = static_cast<std::byte>(i * 7 >> 3);
  const uint64_t handle = session->NewHandle();
  session->Alloc(handle, kBytes + 10);
  for (int round = 0; round < 3; ++round) {
    std::fill(in->bytes().begin(), in->bytes().end(), std::byte{0});
    ASSERT_TRUE(session->WriteShared(handle, round, *out).ok()) << session->status();
    ASSERT_TRUE(session->ReadShared(handle, round, *in).ok()) << session->status();
    EXPECT_TRUE(std::equal(in->bytes().begin(), in->bytes().end(), out->bytes().begin()));
  }
  // Released, so that it can be written.
  session->WriteCopy(handle, 0, Bytes(std::vector<uint8_t>(16, 1)));
  EXPECT_TRUE(session->Sync().Get().ok());
  EXPECT_EQ(Stat("telegrad_written_bytes_total"), 3.0 * kBytes + 16);
}

TEST_F(SharedMemoryTest, AFailureIsTheOperations) {
  auto session = Session();
  auto memory = *SharedMemory::Create(1 << 20);
  const uint64_t handle = session->NewHandle();
  session->Alloc(handle, 1000);
  (void)session->WriteShared(handle, 0, *memory);  // too long for the buffer
  const auto sync = session->Sync().Get();
  EXPECT_EQ(sync.status().code(), Code::kInvalidArgument) << sync.status();
  const absl::Status read = session->ReadShared(handle, 0, *memory);
  EXPECT_EQ(read.code(), Code::kInvalidArgument) << read;
}

TEST_F(SharedMemoryTest, RequestsThatAreNoneAreRefused) {
  auto session = Session();
  auto door = *LocalDoor::Open(local_);
  const auto memory = *SharedMemory::Create(4096);
  const std::string token(32, '0');
  const std::string requests[] = {
      "upload",
      "upload " + token,
      "upload " + token + " 1 1 0",
      "upload " + token + " 1 1 0 10 10",
      "upload " + token + " 1 1 0 -10",
      "upload " + token + " 1 1 0 99999999999999999999999",
      "upload xyz 1 1 0 10",
      "upload 123 1 1 0 10",
      "download " + token + "  1 1 0 10",
  };
  for (const std::string& request : requests) {
    const auto answer = door->Ask(request, memory->fd());
    EXPECT_THAT(std::string(answer.status().message()), HasSubstr("expected TOKEN")) << request;
  }
  const auto unknown = door->Ask("upload " + token + " 1 1 0 10", memory->fd());
  EXPECT_FALSE(unknown.ok());
}

// A socket that has bytes to send waits for them when it is closed, for as long as it was told.
UniqueFd LingeringSocket(UniqueFd* peer) {
  const UniqueFd listener = *ListenTcp("127.0.0.1:0");
  UniqueFd fd = *ConnectTcp(StrCat("127.0.0.1:", PortOf(listener)),
                            std::chrono::steady_clock::now() + std::chrono::seconds(20));
  *peer = UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const std::string bytes(1 << 20, 'x');
  while (send(fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  const linger wait{.l_onoff = 1, .l_linger = 600};
  EXPECT_EQ(setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof(wait)), 0);
  return fd;
}

// Sends the descriptor to the daemon and does not wait for the answer.
UniqueFd SendTo(const std::string& path, int descriptor) {
  UniqueFd door(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un at{.sun_family = AF_UNIX, .sun_path = {}};
  path.copy(at.sun_path, sizeof(at.sun_path) - 1);
  EXPECT_EQ(connect(door.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
  char text[] = "upload";
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec vector{text, sizeof(text) - 1};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(descriptor));
  EXPECT_GT(sendmsg(door.get(), &message, 0), 0);
  return door;
}

// Whoever closes it last waits: the daemon, unless it has been faster than this thread.
TEST_F(SharedMemoryTest, WhatTakesItsTimeToCloseHoldsUpNobody) {
  auto session = Session();
  for (int i = 0; i < 3; ++i) {
    UniqueFd peer, slow = LingeringSocket(&peer);
    const UniqueFd door = SendTo(local_, slow.get());
    std::thread closes([&slow] { const UniqueFd closed = std::move(slow); });
    char answer[256] = {};
    ASSERT_GT(recv(door.get(), answer, sizeof(answer) - 1, 0), 0);
    EXPECT_THAT(std::string(answer), HasSubstr("this is another file"));
    auto other = *LocalDoor::Open(local_);
    EXPECT_TRUE(other->Ask("token", (*SharedMemory::Create(4096))->fd()).ok());
    peer = UniqueFd();
    closes.join();
  }
}

TEST_F(SharedMemoryTest, OffUnlessAskedFor) {
  Start({"--local-socket", local_});
  auto door = *LocalDoor::Open(local_);
  const auto memory = *SharedMemory::Create(4096);
  const auto answer = door->Ask("upload 00 1 1 0 10", memory->fd());
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr("no such request"));
}

}  // namespace
}  // namespace telegrad
