#include "server/service/passed_listener.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/base/status.h"
#include "engine/base/thread.h"

namespace telegrad {
namespace {

// Until a socket is tried again after the process or the system had no descriptor for a connection.
constexpr int kAcceptPauseMs = 100;

}  // namespace

PassedListener::PassedListener(std::vector<Row> rows)
    : rows_(std::move(rows)),
      stop_(eventfd(0, EFD_CLOEXEC)),
      refused_(LogLevel::kWarning, "not_accepted") {}

absl::StatusOr<std::unique_ptr<PassedListener>> PassedListener::Start(std::vector<Row> rows) {
  std::unique_ptr<PassedListener> out(new PassedListener(std::move(rows)));
  if (!out->stop_.valid()) return ResourceExhausted("eventfd: ", std::strerror(errno));
  TG_ASSIGN_OR_RETURN(out->thread_, StartThread([listener = out.get()] { listener->Loop(); }));
  return out;
}

PassedListener::~PassedListener() {
  eventfd_write(stop_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

void PassedListener::Loop() {
  std::vector<pollfd> polled;
  for (const Row& row : rows_) polled.push_back({row.fd, POLLIN, 0});
  polled.push_back({stop_.get(), POLLIN, 0});
  while (true) {
    if (poll(polled.data(), polled.size(), -1) < 0) continue;
    if (polled.back().revents != 0) return;
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (polled[i].revents == 0 || Accept(rows_[i])) continue;
      poll(&polled.back(), 1, kAcceptPauseMs);  // whoever waits to be accepted still does
    }
  }
}

// False where accepting again at once would fail in the same way.
bool PassedListener::Accept(const Row& row) {
  const int fd = accept4(row.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return true;
    refused_.Write({{"why", std::strerror(errno)}});
    return false;
  }
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
  connection.listener_fd = row.fd;
  connection.fd = fd;  // which gRPC closes
  row.acceptor->HandleNewConnection(&connection);
  return true;
}

}  // namespace telegrad
