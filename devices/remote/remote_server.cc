// Connects, keeps a link for each tenant, measures round trips and bandwidth for predictions,
// and runs the two threads.
#include "devices/remote/remote_server.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/time/clock.h"
#include "devices/remote/remote_items.h"
#include "devices/remote/remote_link.h"
#include "devices/remote/remote_peers.h"
#include "engine/base/device_lost.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

// Between two looks at what time ends.
constexpr std::chrono::milliseconds kBusyTick{10}, kIdleTick{50};
// Between two questions of a tenant whose process there is lost.
constexpr std::chrono::milliseconds kAskAgain{100};
// Copies that are shorter tell about the round trip, not about the bandwidth.
constexpr int64_t kMeasuredBytes = 1 << 20;
// That Recover waits for a connection.
constexpr absl::Duration kReconnect = absl::Seconds(1);
// From how many bytes on writes and reads leave the session's connection: under the megabyte that
// large writes and reads of the front's clients come in.
constexpr size_t kBulkBytes = 512 << 10;
// To connect: nothing resumes a connection that breaks before its first answer.
constexpr int kConnectAttempts = 4;

// Not an answer of the server.
bool IsOfTheNetwork(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status) || absl::IsInternal(status) || absl::IsUnknown(status);
}

}  // namespace

ConnectOptions ConnectionTo(const RemoteOptions& options, const std::string& tenant) {
  ConnectOptions out{.client = "telegradd"};
  out.advises = false;
  out.timeout = options.connect_time;
  out.credentials = options.credentials;
  out.bulk_bytes = kBulkBytes;
  out.bulk_sockets = options.bulk_address != "none";
  if (out.bulk_sockets) out.bulk_address = options.bulk_address;
  out.operation_sockets = true;
  // The one tenant of a daemon that asks nobody who they are is who the daemon itself is there.
  if (tenant != "local") out.credentials.acts_for = tenant;
  return out;
}

RemoteServer::RemoteServer(RemoteOptions options, std::shared_ptr<Connection> connection,
                           std::span<const DeviceInfo> devices)
    : options_(std::move(options)), connection_(std::move(connection)) {
  const MutexLock lock(mutex_);
  for (const DeviceInfo& device : devices) {
    said_[device.name] = {.generation = device.generation,
                          .memory_generation = device.memory_generation,
                          .of_tenant = device.of_tenant};
  }
}

RemoteServer::~RemoteServer() = default;

void RemoteServer::Start() {
  prober_ = std::thread([this] { Probe(); });
  ticker_ = std::thread([this] { Tick(); });
}

// Links are held until their sessions are closed here, and those that are going meanwhile have left
// their sessions here first: nobody else may close one.
void RemoteServer::Stop() {
  const auto links = Links();
  // One limit for all of them: a service manager waits for the process no longer than that.
  const int64_t end =
      SteadyNs() + absl::ToInt64Nanoseconds(std::min(options_.drain, absl::Hours(24)));
  for (const auto& link : links) {
    link->Drain(absl::Nanoseconds(std::max<int64_t>(0, end - SteadyNs())));
  }
  {
    ReleasableLock lock(mutex_);
    while (live_links_ != links.size()) changed_.wait(lock);
    stop_ = true;
  }
  changed_.notify_all();
  prober_.join();
  ticker_.join();
  for (const auto& link : links) link->Close();
  std::vector<std::unique_ptr<RemoteSession>> buried;
  const MutexLock lock(mutex_);
  buried.swap(buried_);
}

absl::StatusOr<std::shared_ptr<Connection>> RemoteServer::Connect(const std::string& tenant) const {
  const absl::Time deadline = absl::Now() + options_.connect_time;
  for (int attempt = 1;; ++attempt) {
    auto connection = Connection::Connect(options_.address, ConnectionTo(options_, tenant));
    const bool again = absl::IsUnavailable(connection.status()) && attempt < kConnectAttempts;
    if (!again || absl::Now() > deadline) return connection;
  }
}

std::shared_ptr<RemoteLink> RemoteServer::LinkOf(std::string_view tenant) {
  const MutexLock lock(mutex_);
  std::erase_if(links_, [](const auto& known) { return known.second.expired(); });
  std::erase_if(said_to_, [&](const auto& entry)
                              TG_REQUIRES(mutex_) { return !links_.contains(entry.first.first); });
  std::weak_ptr<RemoteLink>& known = links_[std::string(tenant)];
  std::shared_ptr<RemoteLink> link = known.lock();
  if (link == nullptr) {
    link = std::make_shared<RemoteLink>(shared_from_this(), std::string(tenant));
    known = link;
    ++live_links_;
  }
  return link;
}

std::vector<std::shared_ptr<RemoteLink>> RemoteServer::Links() {
  std::vector<std::shared_ptr<RemoteLink>> links;
  const MutexLock lock(mutex_);
  for (const auto& [tenant, known] : links_) {
    if (auto link = known.lock()) links.push_back(std::move(link));
  }
  return links;
}

absl::Status RemoteServer::Reachable() const {
  const MutexLock lock(mutex_);
  return away_;
}

const RemoteServer::Said* RemoteServer::SaidTo(const std::string& device,
                                               const std::string& tenant) const {
  const auto it = said_.find(device);
  if (it == said_.end()) return nullptr;
  if (!it->second.of_tenant || !it->second.health.ok()) return &it->second;
  const auto to = said_to_.find({tenant, device});
  return to == said_to_.end() ? &it->second : &to->second;
}

absl::Status RemoteServer::Health(const std::string& device, const std::string& tenant) const {
  const MutexLock lock(mutex_);
  if (!away_.ok()) return away_;
  const Said* const said = SaidTo(device, tenant);
  return said == nullptr ? absl::OkStatus() : said->health;
}

RemoteServer::Losses RemoteServer::LossesOf(const std::string& device,
                                            const std::string& tenant) const {
  const MutexLock lock(mutex_);
  const Said* const said = SaidTo(device, tenant);
  return said == nullptr ? Losses{} : said->losses;
}

DeviceLink RemoteServer::link() const {
  const MutexLock lock(mutex_);
  return {round_trip_ns_, bytes_per_second_};
}

// With a device as the server names it.
bool RemoteServer::BeginsWithDevice(std::string_view text) const {
  return std::ranges::any_of(said_, [text](const auto& entry) {
    const std::string& device = entry.first;
    return text.starts_with(device) && text.size() > device.size() &&
           absl::ascii_isdigit(text[device.size()]) == 0;
  });
}

std::string RemoteServer::Words(const absl::Status& status) const {
  const std::string text(Reason(status));
  const bool limit = absl::IsResourceExhausted(status);
  if (!limit && !absl::IsUnavailable(status)) return text;
  const MutexLock lock(mutex_);
  const char* const separator = BeginsWithDevice(text) ? "/" : ": ";
  return StrCat(options_.name, separator, text, limit ? "; the limit is of the server at " : "",
                limit ? options_.address : "");
}

bool RemoteServer::Exchanges(const RemoteServer& other) const {
  return options_.peers != nullptr && options_.peers == other.options_.peers &&
         RemotePeers::Sends(*connection_, *other.connection_) &&
         RemotePeers::Sends(*other.connection_, *connection_);
}

void RemoteServer::Measured(int64_t bytes, int64_t ns) {
  if (bytes < kMeasuredBytes || ns <= 0) return;
  const double rate = static_cast<double>(bytes) * 1e9 / static_cast<double>(ns);
  const MutexLock lock(mutex_);
  bytes_per_second_ = bytes_per_second_ > 0 ? 0.75 * bytes_per_second_ + 0.25 * rate : rate;
}

void RemoteServer::Bury(std::unique_ptr<RemoteSession> session) {
  const MutexLock lock(mutex_);
  buried_.push_back(std::move(session));
}

void RemoteServer::Gone(std::unique_ptr<RemoteSession> session) {
  const MutexLock lock(mutex_);
  if (session != nullptr) buried_.push_back(std::move(session));
  --live_links_;
  changed_.notify_all();
}

void RemoteServer::Hear(const DeviceInfo& device) {
  const auto known = said_.find(device.name);
  if (known == said_.end()) return;
  Said& said = known->second;
  said.of_tenant = device.of_tenant;
  if (!device.of_tenant) return Hear(device, &said);
  said.health = absl::OkStatus();  // what became of this connection's process is its tenant's
}

void RemoteServer::Hear(const DeviceInfo& device, Said* said) const {
  // Servers of earlier releases put a mark of their own behind it.
  std::string health = device.health.substr(0, device.health.find(" [telegrad/"));
  // Behind the name of its code, "UNAVAILABLE: ", it may begin with a device's.
  const size_t code = health.find(": ");
  const size_t text = code == std::string::npos ? 0 : code + 2;
  if (BeginsWithDevice(std::string_view(health).substr(text))) {
    health.insert(text, StrCat(options_.name, "/"));
  }
  said->health =
      device.healthy
          ? absl::OkStatus()
          : DeviceLostError(StrCat("the server at ", options_.address, " says: ", health));
  if (said->generation != device.generation) ++said->losses.of_device;
  if (said->memory_generation != device.memory_generation) ++said->losses.of_memory;
  said->generation = device.generation;
  said->memory_generation = device.memory_generation;
}

bool RemoteServer::HasOfTenants() const {
  return std::ranges::any_of(said_, [](const auto& entry) { return entry.second.of_tenant; });
}

void RemoteServer::Opened(const std::string& tenant, Connection& connection) {
  {
    const MutexLock lock(mutex_);
    if (!HasOfTenants()) return;
  }
  const auto devices = connection.ListDevices();
  if (!devices.ok()) return NoteLoss(tenant);  // what became of its process is asked again
  const MutexLock lock(mutex_);
  for (const DeviceInfo& device : *devices) {
    if (!device.of_tenant || !said_.contains(device.name)) continue;
    const auto [known, is_new] = said_to_.try_emplace(
        {tenant, device.name},
        Said{.generation = device.generation, .memory_generation = device.memory_generation});
    if (!is_new) Hear(device, &known->second);
  }
}

void RemoteServer::NoteLoss(const std::string& tenant) {
  const MutexLock lock(mutex_);
  if (!HasOfTenants()) return;
  asking_.insert(tenant);
  asks_now_ = true;
  changed_.notify_all();
}

void RemoteServer::AskForTenants() {
  std::set<std::string> asking;
  {
    const MutexLock lock(mutex_);
    asking.swap(asking_);
    asks_now_ = false;
  }
  while (!asking.empty()) {
    const std::string tenant = *asking.begin();
    std::shared_ptr<RemoteLink> link;
    {
      const MutexLock lock(mutex_);
      if (const auto known = links_.find(tenant); known != links_.end())
        link = known->second.lock();
    }
    const auto connection = link == nullptr ? nullptr : link->connection();
    if (connection == nullptr) {
      // What it had there went with its session, which its next allocation opens, and then it asks.
      const MutexLock lock(mutex_);
      for (auto& [to, said] : said_to_) {
        if (to.first == tenant) said.health = absl::OkStatus();
      }
      asking.erase(asking.begin());
      continue;
    }
    const auto devices = connection->ListDevices();
    const MutexLock lock(mutex_);
    if (!devices.ok()) {  // the others would wait for that, too, and the server is looked at first
      asking_.merge(asking);
      return;
    }
    asking.erase(asking.begin());
    for (const DeviceInfo& device : *devices) {
      if (!device.of_tenant || !said_.contains(device.name)) continue;
      Hear(device, &said_to_[{tenant, device.name}]);
      if (!device.healthy) asking_.insert(tenant);
    }
  }
}

void RemoteServer::Recover() {
  connection_->Reconnect(std::min(options_.connect_time, kReconnect));
  Look();
}

void RemoteServer::Look() {
  const int64_t begin = SteadyNs();
  const auto devices = connection_->ListDevices();
  const int64_t now = SteadyNs();
  int64_t silent = 0;
  {
    const MutexLock lock(mutex_);
    if (devices.ok()) {
      round_trip_ns_ = now - begin;
      failing_since_ = 0;
      away_ = absl::OkStatus();
      for (auto& [name, said] : said_) {
        said.health = DeviceLostError(
            StrCat("the server at ", options_.address, " has no device ", name, " any more"));
      }
      for (const DeviceInfo& device : *devices) Hear(device);
      return;
    }
    if (failing_since_ == 0) failing_since_ = begin;
    silent = now - failing_since_;
  }
  if (silent >= absl::ToInt64Nanoseconds(options_.grace)) Missed(silent, now, devices.status());
  // Else the pauses between attempts to connect would grow to minutes.
  connection_->Reconnect(absl::ZeroDuration());
}

// The server has given no list of its devices for so long. Where it refuses this front, or drains,
// its open sessions go on: a refusal is an answer, and a session that moves shows that the server
// is there.
void RemoteServer::Missed(int64_t silent_ns, int64_t now_ns, const absl::Status& why) {
  const std::string message(why.message());
  const absl::Status lost = absl::UnavailableError(
      StrCat(options_.name, " is lost: the server at ", options_.address, " has not answered for ",
             silent_ns / 1'000'000, " ms: ", message));
  const bool refuses = !IsOfTheNetwork(why);
  const int64_t since = now_ns - absl::ToInt64Nanoseconds(options_.grace);
  std::vector<std::shared_ptr<RemoteLink>> still;
  size_t links = 0;
  if (!refuses) {
    still = Links();
    links = still.size();
    std::erase_if(still, [&](const auto& link) { return link->ProgressedSince(since); });
  }
  {
    const MutexLock lock(mutex_);
    if (refuses) {
      away_ = absl::UnavailableError(
          StrCat(options_.name, " takes no new work: this front cannot call the server at ",
                 options_.address, ", whose open sessions go on: ", message,
                 absl::IsUnauthenticated(why) ? kItsOwnCredentials : ""));
    } else if (still.size() < links) {
      away_ = absl::UnavailableError(
          StrCat(options_.name, " takes no new work: the server at ", options_.address,
                 " is draining or cannot be called, and its open sessions go on: ", message));
    } else {
      away_ = DeviceLostError(ToStd(lost.message()));
    }
  }
  for (const auto& link : still) link->Lose(lost);  // whoever sees its end knows why
}

void RemoteServer::Probe() {
  const auto interval = absl::ToChronoNanoseconds(options_.interval);
  auto look = std::chrono::steady_clock::now();  // when the next is due
  ReleasableLock lock(mutex_);
  while (!stop_) {
    lock.unlock();
    if (std::chrono::steady_clock::now() >= look) {
      Look();
      look = std::chrono::steady_clock::now() + interval;
    }
    AskForTenants();
    lock.lock();
    const auto next =
        asking_.empty() ? look : std::min(look, std::chrono::steady_clock::now() + kAskAgain);
    while (!stop_ && !asks_now_ && changed_.wait_until(lock, next) != std::cv_status::timeout) {
    }
  }
}

void RemoteServer::Tick() {
  ReleasableLock lock(mutex_);
  while (!stop_) {
    auto buried = std::exchange(buried_, {});
    lock.unlock();
    buried.clear();
    bool busy = false;
    for (const auto& link : Links()) busy |= link->Tick();
    lock.lock();
    const auto next = std::chrono::steady_clock::now() + (busy ? kBusyTick : kIdleTick);
    while (!stop_ && buried_.empty() &&
           changed_.wait_until(lock, next) != std::cv_status::timeout) {
    }
  }
}

}  // namespace telegrad
