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

#include "absl/strings/escaping.h"
#include "server/data/local_data.h"
#include "tests/fuzz/filled_session.h"
#include "tests/fuzz/fuzz.h"

namespace telegrad::fuzz {
namespace {

constexpr uint8_t kDescriptors = 7;  // how many come along
constexpr uint8_t kUnsealed = 8;
constexpr int64_t kMemory = 64;

class Daemon {
 public:
  Daemon()
      : path_(std::filesystem::temp_directory_path() / StrCat("telegrad_local_fuzz_", getpid())) {
    LocalSocket::Handlers handlers =
        LocalDataHandlers(&host_.workers(), FinderIn(&host_.registry(), [this](const std::string&) {
          return absl::StatusOr<std::shared_ptr<Tenant>>(host_.tenant());
        }));
    socket_ = *LocalSocket::Start(path_, *LocalUsers::Parse({}), std::move(handlers));
    Connect();
  }

  void Send(uint8_t flags, std::string packet) {
    const auto session = host_.Open();
    const std::string name =
        StrCat(absl::BytesToHexString(session->terms().token), " ", host_.registry().epoch());
    for (size_t at = packet.find('$'); at != std::string::npos; at = packet.find('$', at)) {
      packet.replace(at, 1, name);
      at += name.size();
    }
    SendPacket(flags, packet);
    host_.Close(session);
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
  SessionHost host_;
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
