// One thread polls all listeners and takes a number of connections from each in turn. Where
// there is no descriptor it pauses; a listener that fails is opened again.
#include "server/service/acceptor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/base/status.h"
#include "engine/base/thread.h"
#include "engine/net/tcp.h"
#include "engine/net/unix_listener.h"

namespace telegrad {
namespace {

// Until it is tried again where a connection could not be accepted. Meanwhile it waits in the
// kernel's queue, or finds somebody else's place.
constexpr int kAcceptPauseMs = 100;
// Of one listener before the next one has its turn.
constexpr int kAtATime = 64;

absl::StatusOr<UnixListener> ListenUnix(const ListenAddress& address, mode_t mask) {
  const mode_t usual = umask(mask);
  auto bound = BindUnix(address.text.substr(5), SOCK_STREAM);  // after "unix:"
  umask(usual);
  TG_ASSIGN_OR_RETURN(UnixListener listener, std::move(bound));
  if (listen(listener.fd.get(), SOMAXCONN) != 0) {
    return absl::UnavailableError(
        StrCat("cannot listen on ", address.text, ": ", std::strerror(errno)));
  }
  return listener;
}

}  // namespace

Acceptor::Acceptor(Connections* connections, Metrics* metrics)
    : connections_(connections), metrics_(metrics), stop_(eventfd(0, EFD_CLOEXEC)) {}

Acceptor::~Acceptor() { Stop(); }

absl::Status Acceptor::Open(Row& row) {
  row.file.Remove();  // first, so that the address is free
  row.listeners.clear();
  if (row.address.is_unix) {
    TG_ASSIGN_OR_RETURN(UnixListener listener, ListenUnix(row.address, row.mask));
    row.listeners.push_back(std::move(listener.fd));
    row.file = std::move(listener.file);
  } else {
    TG_ASSIGN_OR_RETURN(row.listeners, ListenTcpAll(row.address.text));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Acceptor::Listen(const ListenAddress& address, mode_t mask, Take take) {
  Row row{.address = address,
          .mask = mask,
          .adopted = false,
          .take = std::move(take),
          .listeners = {},
          .file = {}};
  TG_RETURN_IF_ERROR(Open(row));
  std::string& text = row.address.text;
  if (!address.is_unix) {
    text = StrCat(text.substr(0, text.rfind(':') + 1), PortOf(row.listeners.front()));
  }
  rows_.push_back(std::move(row));
  return rows_.back().address.text;
}

absl::Status Acceptor::Adopt(const ListenAddress& address, int listener, Take take) {
  UniqueFd own(fcntl(listener, F_DUPFD_CLOEXEC, 0));
  if (!own.valid()) return ResourceExhausted(address.text, ": no descriptor is left");
  Row row{.address = address,
          .mask = 0,
          .adopted = true,
          .take = std::move(take),
          .listeners = {},
          .file = {}};
  row.listeners.push_back(std::move(own));
  rows_.push_back(std::move(row));
  return absl::OkStatus();
}

absl::Status Acceptor::Start() {
  if (!stop_.valid()) return ResourceExhausted("eventfd: no descriptor is left");
  TG_ASSIGN_OR_RETURN(thread_, StartThread([this] { Serve(); }));
  return absl::OkStatus();
}

void Acceptor::Stop() {
  if (thread_.joinable()) {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  rows_.clear();
}

void Acceptor::Serve() {
  while (true) {
    std::vector<pollfd> polled = {{stop_.get(), POLLIN, 0}};
    for (const Row& row : rows_) {
      for (const UniqueFd& fd : row.listeners) polled.push_back({fd.get(), POLLIN, 0});
    }
    // A listener that could not be opened anew is tried again.
    const bool all = std::ranges::none_of(rows_, [](const Row& r) { return r.listeners.empty(); });
    if (poll(polled.data(), polled.size(), all ? -1 : kAcceptPauseMs) < 0) continue;
    if (polled[0].revents != 0) return;
    bool paused = false;
    size_t at = 1;
    for (Row& row : rows_) {
      int error = row.listeners.empty() ? EBADF : 0;
      for (const UniqueFd& listener : row.listeners) {
        const short events = polled[at++].revents;
        if (events != 0 && !AcceptSome(row, listener)) error = errno;
        if ((events & (POLLERR | POLLHUP | POLLNVAL)) != 0 && error == 0) error = EINVAL;
      }
      if (error != 0) Failed(row, error);
      paused |= error != 0;
    }
    if (paused && poll(polled.data(), 1, kAcceptPauseMs) > 0) return;
  }
}

// False, and errno, where a connection could not be accepted for a reason that is not its own.
bool Acceptor::AcceptSome(const Row& row, const UniqueFd& listener) {
  for (int i = 0; i < kAtATime; ++i) {
    UniqueFd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      constexpr int kOwn[] = {EAGAIN, EINTR, ECONNABORTED, EPROTO, ENETDOWN, EHOSTUNREACH, EPERM};
      return std::ranges::find(kOwn, errno) != std::end(kOwn);
    }
    if (!row.address.is_unix) TuneTcp(fd);
    if (!connections_->Admit(fd.get())) {
      refused_.Write(
          {{"why",
            "there are as many as may be, all of known callers, and none has more than a share"},
           {"connections", connections_->most()}});
      continue;
    }
    row.take(fd.release());
  }
  return true;
}

void Acceptor::Failed(Row& row, int error) {
  failed_.Write({{"address", row.address.text}, {"why", std::strerror(error)}});
  if (metrics_ != nullptr) metrics_->Add(Metric::kAcceptErrors);
  if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
    connections_->Evict();
    return;
  }
  if (row.adopted) return;
  // The listener itself is at fault.
  if (const absl::Status status = Open(row); !status.ok()) {
    failed_.Write({{"address", row.address.text}, {"why", status.message()}});
  }
}

}  // namespace telegrad
