// One thread accepts and pauses where there is no descriptor. At the limit, the connection that
// has waited longest without a ticket is closed.
#include "server/data/bulk_listener.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/base/status.h"
#include "engine/base/thread.h"
#include "engine/net/tcp.h"
#include "proto/transport.h"

namespace telegrad {
namespace {

// Until it is tried again where there was no descriptor for a connection.
constexpr int kPauseMs = 100;

}  // namespace

BulkListener::BulkListener(const BulkOptions& options, Metrics* metrics)
    : tls_(options.tls),
      metrics_(metrics),
      stop_(eventfd(0, EFD_CLOEXEC)),
      tickets_(options.most) {}

absl::StatusOr<std::unique_ptr<BulkListener>> BulkListener::Start(const BulkOptions& options,
                                                                  Metrics* metrics) {
  std::unique_ptr<BulkListener> bulk(new BulkListener(options, metrics));
  if (!bulk->stop_.valid()) return ResourceExhausted("eventfd: ", std::strerror(errno));
  for (const std::string& address : options.addresses) {
    TG_ASSIGN_OR_RETURN(UniqueFd listener, ListenTcp(address));
    bulk->addresses_.push_back(StrCat(address.substr(0, address.rfind(':') + 1), PortOf(listener)));
    bulk->listeners_.push_back(std::move(listener));
  }
  bulk->thread_ = std::thread([listener = bulk.get()] { listener->Listen(); });
  return bulk;
}

void BulkListener::Stop() {
  eventfd_write(stop_.get(), 1);
  if (thread_.joinable()) thread_.join();
  std::map<uint64_t, Row> rows;
  {
    const MutexLock lock(mutex_);
    rows.swap(rows_);  // so that none of them moves itself to those that have ended
  }
  for (auto& [id, row] : rows) row.connection->Shutdown();
  for (auto& [id, row] : rows) row.thread.join();
  JoinEnded();
}

bool BulkListener::MakeRoomLocked() {
  int64_t waiting = 0;
  Row* oldest = nullptr;
  for (auto& [id, row] : rows_) {
    if (row.connection->admitted()) continue;
    ++waiting;
    if (oldest == nullptr && !row.evicted) oldest = &row;
  }
  if (waiting < kMostWaiting) return true;
  if (oldest == nullptr || waiting >= 2 * kMostWaiting) return false;  // those evicted still leave
  oldest->evicted = true;
  oldest->connection->Shutdown();
  return true;
}

void BulkListener::Listen() {
  std::vector<pollfd> polled;
  for (const UniqueFd& listener : listeners_) polled.push_back({listener.get(), POLLIN, 0});
  polled.push_back({stop_.get(), POLLIN, 0});
  while (true) {
    if (poll(polled.data(), polled.size(), -1) < 0) continue;
    if (polled.back().revents != 0) return;
    for (size_t i = 0; i < listeners_.size(); ++i) {
      if (polled[i].revents == 0 || Accept(listeners_[i])) continue;
      poll(&polled.back(), 1, kPauseMs);  // waiting connections stay in the backlog
    }
    JoinEnded();
  }
}

// False where the process or the system has no descriptor left.
bool BulkListener::Accept(const UniqueFd& listener) {
  UniqueFd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!fd.valid()) return errno == ECONNABORTED || errno == EAGAIN || errno == EINTR;
  TuneTcp(fd);
  absl::StatusOr<std::unique_ptr<StreamSocket>> socket =
      tls_ ? TlsServerWithCertificate(
                 std::move(fd), kBulkStall,
                 [this](std::string_view identity) { return tickets_.FindSecret(identity); })
           : std::make_unique<StreamSocket>(std::move(fd), kBulkStall);
  if (!socket.ok()) {
    refused_.Write({{"why", std::string(socket.status().message())}});
    return true;
  }
  auto connection = std::make_shared<BulkConnection>(*std::move(socket), &tickets_, metrics_);
  const MutexLock lock(mutex_);
  if (!MakeRoomLocked()) {
    refused_.Write({{"why", "too many connections have shown no ticket yet"}});
    return true;
  }
  const uint64_t id = ++last_id_;
  metrics_->Add(Metric::kBulkSockets);  // before the thread, which may end at once
  auto thread = StartThread([this, id, connection]() mutable { Serve(id, std::move(connection)); });
  if (!thread.ok()) {
    metrics_->Add(Metric::kBulkSockets, -1);
    refused_.Write({{"why", std::string(thread.status().message())}});
    return false;
  }
  rows_[id] = {.connection = std::move(connection), .thread = *std::move(thread)};
  return true;
}

void BulkListener::Serve(uint64_t id, std::shared_ptr<BulkConnection> connection) {
  const absl::Status status = connection->Serve();
  // A normal end is a closed connection; other reasons are logged.
  if (!absl::IsUnavailable(status) && !absl::IsAborted(status)) {
    refused_.Write({{"why", std::string(status.message())}});
  }
  {
    const MutexLock lock(mutex_);
    const auto it = rows_.find(id);
    if (it != rows_.end()) {  // else the listener waits for it itself
      ended_.push_back(std::move(it->second.thread));
      rows_.erase(it);
    }
  }
  connection.reset();
  metrics_->Add(Metric::kBulkSockets, -1);
}

void BulkListener::JoinEnded() {
  std::vector<std::thread> ended;
  {
    const MutexLock lock(mutex_);
    ended.swap(ended_);
  }
  for (std::thread& thread : ended) thread.join();
}

}  // namespace telegrad
