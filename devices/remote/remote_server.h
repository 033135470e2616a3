// Another server, as all tenants see it: its identity, its devices, and whether it answers. One
// of two threads checks its health at regular intervals, over a connection of its own. The other
// handles what ends by time (waits whose points are not reached, cancelled runs), and closes
// sessions, which is not possible within a callback.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "client/cc/connection.h"
#include "client/cc/remote_session.h"
#include "devices/remote/remote_device.h"
#include "engine/base/mutex.h"

namespace telegrad {

class RemoteLink;

// How this process connects to that server for the tenant, or for nobody for "". What a connection
// says of the server's addresses depends on it.
ConnectOptions ConnectionTo(const RemoteOptions& options, const std::string& tenant);
// What a client is to know of an error about credentials, which are not hers.
inline constexpr char kItsOwnCredentials[] =
    "; the front's own credentials are meant, of --remote-token-file, --remote-tls-cert or "
    "--remote-local-socket";

class RemoteServer : public std::enable_shared_from_this<RemoteServer> {
 public:
  RemoteServer(RemoteOptions options, std::shared_ptr<Connection> connection,
               std::span<const DeviceInfo> devices);
  ~RemoteServer();

  void Start();
  // Lets every link end what it has under way, for a while, and closes their sessions.
  void Stop();

  const RemoteOptions& options() const { return options_; }
  // The tenant's link to it, the same for all of its devices.
  std::shared_ptr<RemoteLink> LinkOf(std::string_view tenant);
  // OK, or UNAVAILABLE because it takes no new work or says that the device fails, for that tenant;
  // IsDeviceLost where what was there is lost.
  absl::Status Health(const std::string& device, const std::string& tenant) const;
  // OK, or UNAVAILABLE because it takes no new work; IsDeviceLost because it does not answer.
  absl::Status Reachable() const;
  // Asks the server how it and its devices are, and waits for the answer; connects where it was
  // lost.
  void Recover();
  // The tenant has opened a session over that connection: where devices there have a process for
  // each tenant, asks of which generation its are.
  void Opened(const std::string& tenant, Connection& connection);
  // An operation of the tenant has failed because a device there was lost. Where the server has
  // processes for each tenant, asks soon, as this tenant, until they are well.
  void NoteLoss(const std::string& tenant);
  // How often the device there was seen to be of another generation than before, by the tenant.
  struct Losses {
    uint64_t of_device = 0, of_memory = 0;
  };
  Losses LossesOf(const std::string& device, const std::string& tenant) const;
  DeviceLink link() const;
  // The server's words as this server's clients know it: with the name that its device has here.
  std::string Words(const absl::Status& status) const;
  // That a copy of so many bytes took so long.
  void Measured(int64_t bytes, int64_t ns);

  // Whether buffers travel directly between it and the other server, both ways.
  bool Exchanges(const RemoteServer& other) const;
  // A connection that acts for the tenant, or for nobody for "".
  absl::StatusOr<std::shared_ptr<Connection>> Connect(const std::string& tenant) const;
  // Closes the session, soon and on another thread.
  void Bury(std::unique_ptr<RemoteSession> session);
  // The same, of a link that is going; null: it has none.
  void Gone(std::unique_ptr<RemoteSession> session);

 private:
  // What the server says of a device.
  struct Said {
    absl::Status health = {};
    uint64_t generation = 0, memory_generation = 0;
    Losses losses = {};
    bool of_tenant = false;  // see DeviceInfo
  };

  // Asks the server how it and its devices are.
  void Look();
  void Hear(const DeviceInfo& device) TG_REQUIRES(mutex_);
  void Hear(const DeviceInfo& device, Said* said) const TG_REQUIRES(mutex_);
  // Those whose loss was noted ask how their devices are.
  void AskForTenants();
  bool HasOfTenants() const TG_REQUIRES(mutex_);
  bool BeginsWithDevice(std::string_view text) const TG_REQUIRES(mutex_);
  // What the server says of it to that tenant. Null: it has said nothing.
  const Said* SaidTo(const std::string& device, const std::string& tenant) const
      TG_REQUIRES(mutex_);
  void Missed(int64_t silent_ns, int64_t now_ns, const absl::Status& why);
  void Probe();
  void Tick();
  std::vector<std::shared_ptr<RemoteLink>> Links();

  const RemoteOptions options_;
  const std::shared_ptr<Connection> connection_;

  mutable Mutex mutex_;
  ConditionVariable changed_;
  bool stop_ TG_GUARDED_BY(mutex_) = false;
  // By the server's names.
  std::map<std::string, Said, std::less<>> said_ TG_GUARDED_BY(mutex_);
  // Of devices with a process for each tenant: by tenant and name.
  std::map<std::pair<std::string, std::string>, Said> said_to_ TG_GUARDED_BY(mutex_);
  std::set<std::string> asking_ TG_GUARDED_BY(mutex_);  // tenants that have to ask
  bool asks_now_ TG_GUARDED_BY(mutex_) = false;
  int64_t failing_since_ TG_GUARDED_BY(mutex_) = 0;  // SteadyNs; 0: it answers
  absl::Status away_ TG_GUARDED_BY(mutex_);          // OK: it takes new work; see Reachable
  int64_t round_trip_ns_ TG_GUARDED_BY(mutex_) = 0;
  double bytes_per_second_ TG_GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::weak_ptr<RemoteLink>, std::less<>> links_ TG_GUARDED_BY(mutex_);
  size_t live_links_ TG_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<RemoteSession>> buried_ TG_GUARDED_BY(mutex_);
  std::thread prober_, ticker_;
};

}  // namespace telegrad
