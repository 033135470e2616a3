// Packets to the local socket, with memory or without, beside a session that has a write and a read
// to be filled: each is answered, or ends its connection, and nothing is left of it.
//
//   FLAGS PACKET   in which '$' stands for the session's token and epoch
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "absl/strings/escaping.h"
#include "devices/cpu/cpu_device.h"
#include "server/admin/log.h"
#include "server/session/local_data.h"
#include "tests/fakes/copy_engine.h"
#include "tests/fakes/manual_clock.h"
#include "tests/fuzz/fuzz.h"

namespace telegrad::fuzz {
namespace {

constexpr uint8_t kDescriptors = 7;  // how many come along
constexpr uint8_t kUnsealed = 8;
constexpr int64_t kMemory = 64, kBuffer = 16;
constexpr uint64_t kUpload = 1, kDownload = 2;

class NoSink final : public AnswerSink {
  void OnAnswer(Answer) override {}
  void OnProgress() override {}
  void OnDetached(const absl::Status&) override {}
};

class Daemon {
 public:
  Daemon()
      : path_(std::filesystem::temp_directory_path() / StrCat("telegrad_local_fuzz_", getpid())) {
    SetLogLevel(LogLevel::kOff);
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(*OpenCpu({.threads = 1, .memory_limit = 64 << 20}));
    pool_ = *DevicePool::Create(std::move(devices));
    env_ = {pool_.get(), &workers_, &compilers_, &metrics_, {}, &clock_};
    tenant_ = std::make_shared<Tenant>("fuzz", std::make_shared<fakes::CopyEngine>(), &metrics_);
    registry_ = std::make_unique<SessionRegistry>(env_);
    LocalSocket::Handlers handlers = LocalDataHandlers(
        registry_.get(), &workers_,
        [this](const std::string&) -> absl::StatusOr<std::shared_ptr<Tenant>> { return tenant_; });
    socket_ = *LocalSocket::Start(path_, *LocalUsers::Parse({}), std::move(handlers));
    Connect();
  }

  void Send(uint8_t flags, std::string packet) {
    const auto sink = std::make_shared<NoSink>();
    const auto session = *registry_->Create(tenant_, /*resumable=*/false, 0, sink);
    uint64_t id = 0;
    const auto submit = [&](auto op) {
      FUZZ_CHECK(session->Submit(*sink, {.id = ++id, .op = std::move(op)}).ok());
    };
    submit(AllocOp{1, kBuffer, ""});
    submit(AllocOp{2, kBuffer, ""});
    submit(WriteOp{1, 0, nullptr, kUpload, kBuffer});
    submit(ReadOp{2, 0, kBuffer, kDownload});
    const std::string name =
        StrCat(absl::BytesToHexString(session->terms().token), " ", registry_->epoch());
    for (size_t at = packet.find('$'); at != std::string::npos; at = packet.find('$', at)) {
      packet.replace(at, 1, name);
      at += name.size();
    }
    SendPacket(flags, packet);
    registry_->Close(session, absl::OkStatus());
    while (metrics_.count(Metric::kBuffers) != 0 ||
           tenant_->accounts[Quota::kSharedFiles].used() != 0) {
      std::this_thread::yield();
    }
  }

 private:
  void Connect() {
    client_ = UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    FUZZ_CHECK(connect(client_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  }
  void SendPacket(uint8_t flags, std::string& packet) {
    std::vector<UniqueFd> memory;
    std::vector<int> numbers;
    for (int i = 0; i < (flags & kDescriptors); ++i) {
      memory.emplace_back(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
      FUZZ_CHECK(ftruncate(memory.back().get(), kMemory) == 0);
      const int seals = (flags & kUnsealed) != 0 ? 0 : F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
      FUZZ_CHECK(fcntl(memory.back().get(), F_ADD_SEALS, seals) == 0);
      numbers.push_back(memory.back().get());
    }
    iovec vector{packet.data(), packet.size()};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(kDescriptors * sizeof(int))] = {};
    if (!numbers.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(numbers.size() * sizeof(int));
      cmsghdr* const header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(numbers.size() * sizeof(int));
      std::memcpy(CMSG_DATA(header), numbers.data(), numbers.size() * sizeof(int));
    }
    // The fuzzer's clock interrupts calls.
    ssize_t size;
    do {
      size = sendmsg(client_.get(), &message, MSG_NOSIGNAL);
    } while (size < 0 && errno == EINTR);
    FUZZ_CHECK(size == static_cast<ssize_t>(packet.size()));
    char answer[4096];
    do {
      size = recv(client_.get(), answer, sizeof(answer), 0);
    } while (size < 0 && errno == EINTR);
    if (size <= 0) {
      FUZZ_CHECK(packet.empty());  // which is what the end of a connection looks like
      return Connect();
    }
    const std::string_view text(answer, static_cast<size_t>(size));
    FUZZ_CHECK(text.starts_with("ok ") || text.starts_with("error "));
    static Count count("packets taken");
    count.Input();
    if (text.starts_with("ok ")) count.Passed();
  }

  const std::string path_;
  fakes::ManualClock clock_;
  Metrics metrics_;
  std::unique_ptr<DevicePool> pool_;
  TaskPool workers_{2}, compilers_{1};
  Environment env_;
  std::shared_ptr<Tenant> tenant_;
  std::unique_ptr<SessionRegistry> registry_;
  std::unique_ptr<LocalSocket> socket_;
  UniqueFd client_;
};

}  // namespace
}  // namespace telegrad::fuzz

FUZZ_TARGET(data) {
  static telegrad::fuzz::Daemon daemon;
  if (data.empty()) return;
  daemon.Send(data[0], std::string(data.begin() + 1, data.end()));
}
