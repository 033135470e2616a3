// Offers those devices of the server whose answers about themselves are valid, makes a tenant's
// device on first use, and passes submissions to the tenant's link.
#include "devices/remote/remote_device.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "devices/api/connects.h"
#include "devices/remote/remote_link.h"
#include "devices/remote/remote_server.h"
#include "engine/base/device_lost.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

// Of what a server may say of itself.
constexpr size_t kMaxDevices = 256, kMaxNotes = 1024, kMaxName = 64, kMaxTarget = 256;
constexpr double kMostOperations = 1e18;  // in a second

class RemoteQueue final : public Queue {
 public:
  RemoteQueue(std::shared_ptr<RemoteLink> link, const std::string& name, QueueCapability takes)
      : Queue(name, takes), link_(std::move(link)), state_(link_->NewQueue(name)) {}
  ~RemoteQueue() override { link_->CloseQueue(state_); }

  TimelinePoint last() const override { return link_->Last(*state_); }

 private:
  absl::StatusOr<TimelinePoint> Enqueue(QueueWork work,
                                        std::span<const TimelinePoint> waits) override {
    return link_->Submit(state_, std::move(work), waits);
  }

  const std::shared_ptr<RemoteLink> link_;
  const std::shared_ptr<RemoteLink::QueueState> state_;
};

// Stops the watch over a server when the last of its devices in the pool goes.
class Watch {
 public:
  explicit Watch(std::shared_ptr<RemoteServer> server) : server_(std::move(server)) {
    server_->Start();
  }
  ~Watch() { server_->Stop(); }
  RemoteServer& server() const { return *server_; }

 private:
  const std::shared_ptr<RemoteServer> server_;
};

// What is the same for a device and all its tenants.
struct Facts {
  std::string name;   // "NAME/CPU:0"
  std::string there;  // "CPU:0"
  Target target;
  Rates rates;
  int64_t memory_limit = 0;
  std::shared_ptr<std::atomic<int64_t>> used = std::make_shared<std::atomic<int64_t>>(0);
};

class RemoteDevice final : public Device, public Connects {
 public:
  // `watch` is null for a tenant's.
  RemoteDevice(std::shared_ptr<const Facts> facts, std::shared_ptr<RemoteServer> server,
               std::shared_ptr<Watch> watch, std::string_view tenant)
      : facts_(std::move(facts)),
        server_(std::move(server)),
        watch_(std::move(watch)),
        link_(server_->LinkOf(tenant)),
        compute_(link_, StrCat(facts_->name, " compute"), kComputesAndCopies),
        copy_(link_, StrCat(facts_->name, " copy"), kCopiesOnly) {}

  const std::string& name() const override { return facts_->name; }
  const Target& target() const override { return facts_->target; }
  Rates rates() const override { return facts_->rates; }
  int64_t memory_limit() const override { return facts_->memory_limit; }
  // By this process.
  int64_t memory_used() const override { return facts_->used->load(); }
  ProgramLevel accepts() const override { return ProgramLevel::kTensorGraph; }
  bool host_visible() const override { return false; }
  // The host is this one: what two servers exchange, or one copies, does not pass through it.
  PeerAccess AccessTo(const Device& other) const override {
    const auto* remote = dynamic_cast<const RemoteDevice*>(&other);
    if (remote == nullptr) return Device::AccessTo(other);
    if (remote->link_ != link_) {
      return {link_->Exchanges(*remote->link_) ? PeerPath::kDirect : PeerPath::kNone};
    }
    if (remote->facts_ == facts_) return {PeerPath::kDirect, /*atomics=*/true};
    return {link_->copies_there() ? PeerPath::kDirect : PeerPath::kThroughHost};
  }
  std::optional<DeviceLink> link() const override { return server_->link(); }
  bool is_connected() const override { return link_->connected(); }

  std::shared_ptr<Device> ForTenant(std::string_view tenant) override {
    return std::make_shared<RemoteDevice>(facts_, server_, nullptr, tenant);
  }

  absl::StatusOr<std::shared_ptr<Memory>> Alloc(int64_t size) override {
    if (size < 0) return InvalidArgument(name(), ": an allocation of ", size, " bytes");
    int64_t used = facts_->used->load();
    do {
      if (size > facts_->memory_limit - used) {
        return ResourceExhausted(name(), ": allocating ", size, " bytes with ", used,
                                 " in use would pass the memory limit of ", facts_->memory_limit,
                                 " bytes");
      }
    } while (!facts_->used->compare_exchange_weak(used, used + size));
    auto memory = link_->Alloc(facts_->there, size, facts_->used);
    if (!memory.ok()) facts_->used->fetch_sub(size);
    return memory;
  }

  absl::StatusOr<std::shared_ptr<LoadedProgram>> Load(const ProgramImage& image) override {
    return link_->Load(facts_->there, image);
  }
  absl::StatusOr<std::shared_ptr<const CommandBuffer>> Encode(
      std::vector<Command> commands) override {
    return RemoteCommands::Encode(*link_, std::move(commands));
  }
  std::span<Queue* const> queues() override { return queues_; }
  absl::Status Health() const override {
    const absl::Status health = server_->Health(facts_->there, link_->tenant());
    if (health.ok()) return health;
    const std::string why =
        StrCat(name(), " (generation ", generation(), "): ", ToStd(health.message()));
    return IsDeviceLost(health) ? DeviceLostError(why) : absl::UnavailableError(why);
  }
  // With each session that is opened, and with each generation of the device there.
  uint64_t generation() const override {
    return link_->generation() + server_->LossesOf(facts_->there, link_->tenant()).of_device;
  }
  uint64_t memory_generation() const override {
    return link_->memory_generation() + server_->LossesOf(facts_->there, link_->tenant()).of_memory;
  }
  // It comes back by itself once the server is asked how it is; this asks now.
  absl::Status Recover() override {
    if (!Health().ok()) {
      server_->Recover();
      TG_RETURN_IF_ERROR(Health());
    } else if (!link_->lost()) {
      return FailedPrecondition(name(), " is healthy");
    }
    return link_->Recover();
  }

 private:
  const std::shared_ptr<const Facts> facts_;
  const std::shared_ptr<RemoteServer> server_;
  const std::shared_ptr<Watch> watch_;
  const std::shared_ptr<RemoteLink> link_;
  RemoteQueue compute_, copy_;  // first to go
  const std::array<Queue*, 2> queues_ = {&compute_, &copy_};
};

// Tries until the server answers, or the time is over.
absl::StatusOr<std::shared_ptr<Connection>> ConnectWithin(const RemoteOptions& options) {
  const auto end =
      std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(options.connect_time);
  ConnectOptions connect = ConnectionTo(options, "");
  connect.timeout = std::min(options.connect_time, absl::Seconds(2));
  while (true) {
    auto connection = Connection::Connect(options.address, connect);
    const bool again =
        absl::IsUnavailable(connection.status()) && std::chrono::steady_clock::now() < end;
    if (!again) return connection;
    // Nothing tells of a server that begins to listen, so it is asked again.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

bool IsName(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
  });
}

// Why a device is not offered; empty: it is. What the server says of it is not to be trusted.
std::string WhyNot(const DeviceInfo& info, const std::vector<DeviceInfo>& taken) {
  const bool is_name = !info.name.empty() && info.name.size() <= kMaxName &&
                       std::ranges::all_of(info.name, [](char c) {
                         return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                                std::string_view("-_.:").find(c) != std::string_view::npos;
                       });
  if (info.remote) {
    return "that server reaches it elsewhere itself; name its own server with --remote";
  }
  if (info.target.starts_with("none")) {
    return "it runs no programs, which is not offered over a network";
  }
  if (!is_name) return "that is not a name of a device";
  if (info.memory_limit < 0) return "the server says that it has less than no memory";
  if (std::ranges::find(taken, info.name, &DeviceInfo::name) != taken.end()) {
    return "the server has named it before";
  }
  if (taken.size() == kMaxDevices) {
    return StrCat("a front offers at most ", kMaxDevices, " devices of one server");
  }
  return "";
}

// "ARCH[ CPU], N-bit vectors[REST]". Nothing is compiled here: what that server says of its
// processor is shown to people, the rest of it as the features.
Target TargetOf(const DeviceInfo& info) {
  constexpr std::string_view kVectors = "-bit vectors";
  const std::string text = absl::CEscape(info.target.substr(0, kMaxTarget));
  const std::string_view all = text, processor = all.substr(0, all.find(", "));
  Target target;
  target.threads = std::max(info.threads, 1);
  target.arch = processor.substr(0, processor.find(' '));
  if (target.arch.size() < processor.size()) target.cpu = processor.substr(target.arch.size() + 1);
  std::string_view rest = all.substr(std::min(processor.size() + 2, all.size()));
  const std::string_view digits = rest.substr(0, rest.find_first_not_of("0123456789"));
  rest.remove_prefix(digits.size());
  int bits = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), bits);  // 0: too many to be true
  if (rest.starts_with(kVectors) && bits >= 8) {
    target.vector_bytes = bits / 8;
    target.features = rest.substr(kVectors.size());
  }
  return target;
}

// Of its arithmetic, for people and for clients. What it does with its memory is not among it: a
// copy from or to here is limited by the link, and is cut as where no rate is known.
Rates RatesOf(const DeviceInfo& info) {
  Rates out;
  for (const ArithmeticInfo& row : kArithmetics) {
    for (const auto& [kind, per_second] : info.rates) {
      if (kind == row.text && per_second > 0 && per_second < kMostOperations) {
        out.flops[row.arithmetic] = per_second;
      }
    }
  }
  return out;
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenRemote(const RemoteOptions& options,
                                                                std::vector<std::string>* notes) {
  if (!IsName(options.name)) {
    return InvalidArgument("\"", options.name,
                           "\" is not a name for a server; expected letters, digits, - and _");
  }
  auto connection = ConnectWithin(options);
  if (!connection.ok()) {
    const char* const also = absl::IsUnavailable(connection.status())
                                 ? "; a server that requires TLS, or rejects this one's "
                                   "certificate, causes the same error"
                                 : "";
    return absl::Status(
        connection.status().code(),
        StrCat("remote ", options.name, ": ", ToStd(connection.status().message()), also));
  }
  TG_ASSIGN_OR_RETURN(const std::vector<DeviceInfo> infos, (*connection)->ListDevices());
  std::vector<DeviceInfo> taken;
  for (const DeviceInfo& info : infos) {
    const std::string why = WhyNot(info, taken);
    if (why.empty()) {
      taken.push_back(info);
    } else if (notes != nullptr) {
      if (notes->size() == kMaxNotes) break;
      notes->push_back(
          StrCat(options.name, "/", absl::CEscape(info.name.substr(0, kMaxName)), ": ", why));
    }
  }
  const auto server = std::make_shared<RemoteServer>(options, *connection, taken);
  const auto watch = std::make_shared<Watch>(server);
  std::vector<std::unique_ptr<Device>> devices;
  for (const DeviceInfo& info : taken) {
    auto facts = std::make_shared<Facts>();
    facts->name = StrCat(options.name, "/", info.name);
    facts->there = info.name;
    facts->target = TargetOf(info);
    facts->rates = RatesOf(info);
    facts->memory_limit = info.memory_limit;
    devices.push_back(std::make_unique<RemoteDevice>(facts, server, watch, ""));
  }
  return devices;
}

}  // namespace telegrad
