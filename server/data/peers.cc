// A thread for each send under way, and one that looks, while there is anything, whether it was
// cancelled or has stopped.
#include "server/data/peers.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "devices/api/trace.h"
#include "engine/base/status.h"
#include "engine/base/thread.h"
#include "server/data/bulk_listener.h"

namespace telegrad {
namespace {

constexpr std::chrono::milliseconds kTick{20};
constexpr int64_t kPeerNsPerMs = 1'000'000;

// HOST: and PORT; empty where it has none.
std::string_view HostOf(std::string_view address) {
  const size_t colon = address.rfind(':');
  return colon == std::string_view::npos ? "" : address.substr(0, colon + 1);
}

bool IsPort(std::string_view port) {
  return !port.empty() && port.size() <= 5 &&
         std::ranges::all_of(port, [](char c) { return c >= '0' && c <= '9'; });
}

bool IsReached(const TimelinePoint& point) { return point.timeline->value() >= point.value; }

}  // namespace

absl::StatusOr<std::unique_ptr<Peers>> Peers::Create(std::vector<std::string> allowed,
                                                     Metrics* metrics, const PeerLimits& limits) {
  for (const std::string& address : allowed) {
    const std::string_view host = HostOf(address);
    const std::string_view port = std::string_view(address).substr(host.size());
    if (host.size() < 2 || (port != "*" && !IsPort(port))) {
      return InvalidArgument("--peer ", address, ": expected HOST:PORT or HOST:*");
    }
  }
  TG_ASSIGN_OR_RETURN(auto key, PeerKey::Generate());
  return std::unique_ptr<Peers>(new Peers(std::move(allowed), std::move(key), metrics, limits));
}

Peers::Peers(std::vector<std::string> allowed, std::unique_ptr<PeerKey> key, Metrics* metrics,
             const PeerLimits& limits)
    : allowed_(std::move(allowed)),
      key_(std::move(key)),
      metrics_(metrics),
      limits_(limits),
      watch_([this] { Watch(); }) {}

Peers::~Peers() {
  std::vector<std::shared_ptr<PeerSend>> sending;
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    sending = sending_;
    for (const auto& [session, lane] : lanes_) {
      sending.insert(sending.end(), lane.waiting.begin(), lane.waiting.end());
    }
  }
  changed_.notify_all();
  for (const auto& send : sending) send->Stop();
  watch_.join();
  ReleasableLock lock(mutex_);
  while (threads_ > 0) changed_.wait(lock);
}

absl::Status Peers::CheckAllowed(std::string_view address) const {
  const std::string_view host = HostOf(address);
  if (host.size() > 1 && IsPort(address.substr(host.size()))) {
    for (const std::string_view allowed : allowed_) {
      if (allowed == address || (allowed.ends_with(":*") && HostOf(allowed) == host)) {
        return absl::OkStatus();
      }
    }
  }
  return absl::PermissionDeniedError(
      StrCat("this server may not send buffers to ", Clip(address, 256),
             "; its operator allows addresses with --peer (docs/security.md)"));
}

void Peers::Send(PeerSend::Request request, const std::shared_ptr<const SessionQueues>& session) {
  auto send =
      std::make_shared<PeerSend>(std::move(request), key_.get(), metrics_, limits_.patience);
  {
    const MutexLock lock(mutex_);
    Lane& lane = lanes_[session.get()];
    lane.waiting.push_back(std::move(send));
    ++waiting_;
    changed_.notify_all();
    if (lane.threads >= limits_.sends) return;
    ++lane.threads;
    ++threads_;
  }
  auto thread = StartThread([this, session] { Work(session); });
  if (thread.ok()) return thread->detach();
  std::deque<std::shared_ptr<PeerSend>> failed;
  {
    const MutexLock lock(mutex_);
    const auto lane = lanes_.find(session.get());
    --threads_;
    if (--lane->second.threads > 0) return;  // another one takes it
    failed.swap(lane->second.waiting);
    waiting_ -= static_cast<int>(failed.size());
    lanes_.erase(lane);
  }
  for (const auto& one : failed) one->End(thread.status());
}

void Peers::Work(std::shared_ptr<const SessionQueues> session) {
  ReleasableLock lock(mutex_);
  while (true) {
    const auto lane = lanes_.find(session.get());
    if (lane->second.waiting.empty()) {
      if (--lane->second.threads == 0) lanes_.erase(lane);
      break;
    }
    const std::shared_ptr<PeerSend> send = std::move(lane->second.waiting.front());
    lane->second.waiting.pop_front();
    --waiting_;
    sending_.push_back(send);
    changed_.notify_all();
    lock.unlock();
    send->Run();
    lock.lock();
    std::erase(sending_, send);
  }
  --threads_;
  changed_.notify_all();
}

absl::StatusOr<Peers::Ticket> Peers::Admit(const std::shared_ptr<TransferOwner>& session,
                                           const std::string& peer_key, uint64_t bytes,
                                           int64_t lifetime_ms, uint64_t request) {
  if (bulk_ == nullptr) {
    return Unimplemented("this server has no bulk sockets; start it with --bulk-listen");
  }
  if (peer_key.size() != kPeerKeyBytes) {
    return InvalidArgument("a peer_key of ", peer_key.size(), " bytes, expected ", kPeerKeyBytes);
  }
  if (bytes == 0 || bytes > static_cast<uint64_t>(INT64_MAX)) {
    return InvalidArgument("a transfer of ", bytes, " bytes");
  }
  const int64_t lifetime =
      lifetime_ms <= 0 ? limits_.lifetime_ms : std::min(lifetime_ms, limits_.lifetime_ms);
  // Under the mutex, so that the same request is not admitted twice at the same time.
  const MutexLock lock(mutex_);
  if (const Incoming* const known = FindRequestLocked(session.get(), request)) {
    if (known->peer_key == peer_key && known->bytes == bytes) return known->ticket;
    return InvalidArgument("request ", request, " was another one: each has a number of its own");
  }
  TG_ASSIGN_OR_RETURN(const auto admitted, session->transfers().Admit(bytes));
  Ticket ticket{admitted.transfer,
                bulk_->AdmitPeer(session, {peer_key, admitted.transfer, admitted.upload}, lifetime),
                bulk_->tls(), lifetime};
  incoming_.push_back(
      std::make_shared<Incoming>(Incoming{.session = session,
                                          .upload = admitted.upload,
                                          .peer_key = peer_key,
                                          .bytes = bytes,
                                          .request = request,
                                          .ticket = ticket,
                                          .cancellation = nullptr,
                                          .arrivals = 0,
                                          .until_ns = SteadyNs() + lifetime * kPeerNsPerMs}));
  changed_.notify_all();
  return ticket;
}

const Peers::Incoming* Peers::FindRequestLocked(const TransferOwner* session,
                                                uint64_t request) const {
  if (request == 0) return nullptr;
  for (const auto& incoming : incoming_) {
    if (incoming->request != request || incoming->session.lock().get() != session) continue;
    const auto upload = incoming->upload.lock();
    if (upload != nullptr && !IsReached(upload->ended())) return incoming.get();
  }
  return nullptr;
}

void Peers::EndWith(const std::shared_ptr<Upload>& upload,
                    std::shared_ptr<const Cancellation> cancellation) {
  const MutexLock lock(mutex_);
  for (const auto& incoming : incoming_) {
    if (incoming->upload.lock() == upload) incoming->cancellation = std::move(cancellation);
  }
}

// Ends what was cancelled or has stopped. True if nothing more is to be looked at.
bool Peers::IsOver(Incoming& incoming, const Cancellation* cancellation) const {
  const std::shared_ptr<Upload> upload = incoming.upload.lock();
  if (upload == nullptr) return true;
  absl::Status end = cancellation == nullptr ? absl::OkStatus() : cancellation->Check();
  const uint64_t arrivals = upload->arrivals();
  const int64_t now = SteadyNs();
  // What has come and waits for its buffer here is not late.
  if (arrivals != incoming.arrivals || (arrivals > 0 && !upload->is_open())) {
    incoming.arrivals = arrivals;
    incoming.until_ns = now + limits_.stall_ms * kPeerNsPerMs;
  } else if (end.ok() && now > incoming.until_ns) {
    end = absl::DeadlineExceededError(
        arrivals == 0
            ? StrCat("no byte of transfer ", incoming.ticket.transfer,
                     " has arrived before the end of the sending server's ticket")
            : StrCat("transfer ", incoming.ticket.transfer,
                     ": the sending server has sent no byte for ", limits_.stall_ms, " ms"));
  }
  if (!end.ok()) upload->End(end);
  if (!IsReached(upload->ended())) return false;
  if (const auto session = incoming.session.lock()) {
    session->transfers().Finish(incoming.ticket.transfer);
  }
  return true;
}

// Those in lanes that were cancelled before their turn. Their lanes stay, for the threads there.
std::vector<std::shared_ptr<PeerSend>> Peers::TakeCancelledLocked() {
  std::vector<std::shared_ptr<PeerSend>> cancelled;
  for (auto& [session, lane] : lanes_) {
    std::erase_if(lane.waiting, [&](const std::shared_ptr<PeerSend>& send) {
      if (send->Cancelled().ok()) return false;
      cancelled.push_back(send);
      return true;
    });
  }
  waiting_ -= static_cast<int>(cancelled.size());
  return cancelled;
}

void Peers::Watch() {
  using Look = std::pair<std::shared_ptr<Incoming>, std::shared_ptr<const Cancellation>>;
  ReleasableLock lock(mutex_);
  while (!stop_) {
    if (incoming_.empty() && sending_.empty() && waiting_ == 0) {
      changed_.wait(lock);
      continue;
    }
    const auto until = std::chrono::steady_clock::now() + kTick;
    while (!stop_ && changed_.wait_until(lock, until) != std::cv_status::timeout) {
    }
    const auto sending = sending_;
    const auto cancelled = TakeCancelledLocked();
    std::vector<Look> looks;
    for (const auto& incoming : incoming_) looks.emplace_back(incoming, incoming->cancellation);
    lock.unlock();
    // Whoever waits for what ends here may call back.
    for (const auto& send : sending) {
      if (!send->Cancelled().ok()) send->Stop();
    }
    for (const auto& send : cancelled) send->End(send->Cancelled());
    std::erase_if(looks,
                  [this](const Look& look) { return !IsOver(*look.first, look.second.get()); });
    lock.lock();
    for (const Look& over : looks) std::erase(incoming_, over.first);
  }
}

}  // namespace telegrad
