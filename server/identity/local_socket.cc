// One thread serves all peers, since an answer takes microseconds. A peer can neither block the
// thread (it waits only in poll) nor exhaust memory (connections and packets are bounded).
#include "server/identity/local_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "engine/base/status.h"
#include "server/admin/log.h"

namespace telegrad {
namespace {

constexpr size_t kMaxConnections = 256;
constexpr size_t kMaxConnectionsOfUser = 64;
constexpr size_t kMaxPacketBytes = 4096;
constexpr size_t kMaxDescriptors = 4;
// That one user has sent and that take their time to be closed.
constexpr size_t kMaxUnclosed = 16;

void Reply(int fd, const std::string& text) {
  // A peer that does not read its answers loses them.
  [[maybe_unused]] const ssize_t sent =
      send(fd, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Respond(int fd, const absl::StatusOr<std::string>& answer) {
  Reply(fd, answer.ok() ? StrCat("ok ", *answer) : StrCat("error ", answer.status().message()));
}

}  // namespace

absl::StatusOr<LocalUsers> LocalUsers::Parse(std::span<const std::string> rows) {
  LocalUsers users;
  for (const std::string& row : rows) {
    const size_t equals = row.find('=');
    uid_t uid = 0;
    const char* const end = row.data() + std::min(equals, row.size());
    const auto [parsed, error] = std::from_chars(row.data(), end, uid);
    if (equals == std::string::npos || error != std::errc() || parsed != end ||
        !IsTenantName(row.substr(equals + 1))) {
      return InvalidArgument("local user \"", row, "\"; expected UID=TENANT");
    }
    if (!users.tenants_.emplace(uid, row.substr(equals + 1)).second) {
      return InvalidArgument("local user ", uid, " is given twice");
    }
  }
  return users;
}

absl::StatusOr<Principal> LocalUsers::Find(uid_t uid) const {
  const bool own = uid == geteuid();
  const auto it = tenants_.find(uid);
  if (it == tenants_.end() && !own) {
    return absl::UnauthenticatedError(StrCat("user ", uid, " is not known"));
  }
  return Principal{StrCat("uid:", uid),
                   it != tenants_.end() ? it->second : std::string(kLocalTenant), own};
}

bool LocalUsers::others() const {
  return tenants_.size() > static_cast<size_t>(tenants_.count(geteuid()));
}

absl::StatusOr<std::unique_ptr<LocalSocket>> LocalSocket::Start(const std::string& path,
                                                                LocalUsers users,
                                                                Handlers handlers) {
  UniqueFd stop(eventfd(0, EFD_CLOEXEC));
  if (!stop.valid()) return Internal("eventfd: ", std::strerror(errno));
  TG_ASSIGN_OR_RETURN(UnixListener listener, BindUnix(path, SOCK_SEQPACKET));
  // Access is decided by uid; where there is only one user, the mode of the file restricts it, too.
  if (chmod(path.c_str(), users.others() ? 0666 : 0600) != 0 ||
      listen(listener.fd.get(), SOMAXCONN) != 0) {
    return absl::UnavailableError(StrCat("cannot listen on ", path, ": ", std::strerror(errno)));
  }
  return std::unique_ptr<LocalSocket>(
      new LocalSocket(std::move(users), std::move(handlers), std::move(listener), std::move(stop)));
}

LocalSocket::LocalSocket(LocalUsers users, Handlers handlers, UnixListener listener, UniqueFd stop)
    : users_(std::move(users)),
      handlers_(std::move(handlers)),
      listener_(std::move(listener.fd)),
      stop_(std::move(stop)),
      file_(std::move(listener.file)),
      thread_([this] { Serve(); }) {}

LocalSocket::~LocalSocket() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void LocalSocket::Serve() {
  while (true) {
    std::vector<pollfd> polled = {{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    for (const Connection& connection : connections_) {
      polled.push_back({connection.fd->get(), POLLIN, 0});
    }
    if (poll(polled.data(), polled.size(), -1) < 0) continue;
    if (polled[0].revents != 0) return;
    for (size_t i = connections_.size(); i-- > 0;) {
      if (polled[i + 2].revents != 0 && !Answer(connections_[i])) HangUp(i);
    }
    if (polled[1].revents != 0) Accept();
  }
}

// With a connection goes what lies in it unread, descriptors, too.
void LocalSocket::HangUp(size_t connection) {
  const Connection& ended = connections_[connection];
  closer_.Close(UniqueFd(fcntl(ended.fd->get(), F_DUPFD_CLOEXEC, 0)), ended.uid);
  connections_.erase(connections_.begin() + static_cast<ptrdiff_t>(connection));
}

void LocalSocket::Accept() {
  UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (!fd.valid() || getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return;
  size_t of_user = 0;
  for (const Connection& connection : connections_) of_user += connection.uid == peer.uid ? 1 : 0;
  if (connections_.size() >= kMaxConnections || of_user >= kMaxConnectionsOfUser) {
    return Reply(fd.get(), "error there are too many connections");
  }
  if (closer_.open(peer.uid) >= kMaxUnclosed) {
    return Reply(fd.get(), "error descriptors of this user are still being closed");
  }
  absl::StatusOr<Principal> principal = users_.Find(peer.uid);
  if (principal.ok()) {
    Log(LogLevel::kDebug, "local_user", {{"uid", peer.uid}, {"pid", peer.pid}});
  } else {
    refused_.Write({{"uid", peer.uid}, {"pid", peer.pid}});
  }
  connections_.push_back(
      {std::make_shared<UniqueFd>(std::move(fd)), peer.uid, std::move(principal)});
}

bool LocalSocket::Answer(Connection& connection) {
  char packet[kMaxPacketBytes];
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxDescriptors * sizeof(int))];
  iovec vector{packet, sizeof(packet)};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t size = recvmsg(connection.fd->get(), &message, MSG_CMSG_CLOEXEC);
  if (size < 0) return errno == EAGAIN || errno == EINTR;
  Request request{.principal = {}, .text = {}, .descriptors = {}, .answer_later = {}};
  bool only_memory = true;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + at, sizeof(fd));
      if (fcntl(fd, F_GET_SEALS) >= 0) {
        request.descriptors.emplace_back(fd);
      } else {
        closer_.Close(UniqueFd(fd), connection.uid);
        only_memory = false;
      }
    }
  }
  if (size == 0) return false;
  if (!connection.principal.ok()) {
    // Not before: who closes a connection with a packet unread takes the answer back.
    Reply(connection.fd->get(), "error this user is not known here");
    return false;
  }
  request.principal = *connection.principal;
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    Reply(connection.fd->get(), StrCat("error a request has at most ", kMaxPacketBytes,
                                       " bytes and ", kMaxDescriptors, " descriptors"));
    return true;
  }
  if (!only_memory) {
    Reply(connection.fd->get(), "error shared memory is a memfd; this is another file");
    return closer_.open(connection.uid) < kMaxUnclosed;
  }
  const std::string_view text(packet, static_cast<size_t>(size));
  const std::string_view verb = text.substr(0, text.find(' '));
  const auto handler = handlers_.find(verb);
  if (handler == handlers_.end()) {
    Reply(connection.fd->get(), "error there is no such request");
    return true;
  }
  request.text = text.substr(std::min(text.size(), verb.size() + 1));
  request.answer_later = [fd = connection.fd](const absl::StatusOr<std::string>& answer) {
    Respond(fd->get(), answer);
  };
  const auto answer = handler->second(std::move(request));
  if (!answer.ok()) {
    Respond(connection.fd->get(), answer.status());
  } else if (*answer) {
    Respond(connection.fd->get(), **answer);
  }
  return true;
}

}  // namespace telegrad
