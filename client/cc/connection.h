// A connection to a Telegrad server.
//
//   TG_ASSIGN_OR_RETURN(auto connection, Connection::Connect("127.0.0.1:50055"));
//   TG_ASSIGN_OR_RETURN(auto session, connection->OpenSession());
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cc/credentials.h"

namespace telegrad {

class RemoteSession;

inline constexpr std::string_view kDefaultAddress = "127.0.0.1:50055";

enum class Compression { kNone, kLz4, kZstd };

struct ConnectOptions {
  absl::Duration timeout = absl::Seconds(10);  // of connecting and of each call but sessions
  std::string client = "telegrad-cc";          // name and version, for the server's log
  ClientCredentials credentials = {};
  bool advises = true;  // errors say how a user starts a server, names another, or authenticates
  std::string device = {};  // of buffers and models that name none; empty: the server's first
  // Connections over which large writes and reads of a session travel. 0: they stay on the
  // session's.
  int data_streams = 2;
  // From how many bytes on a write or read does so. Of those under 4 MiB a few at a time: beyond
  // that they stay on the session's connection.
  size_t bulk_bytes = size_t{4} << 20;
  std::string data_address = {};  // the address to use in place of the one that the server names
  // Whether they leave gRPC for plain sockets where the server has some.
  bool bulk_sockets = true;
  // Whether the operations of resumable sessions do so, too: less work for each on both sides.
  bool operation_sockets = false;
  std::string bulk_address = {};  // their address in place of the one that the server names; with a
                                  // data_address they are used only where this is set
  // Compression of their chunks, for slow networks; used where the server supports it and a chunk
  // gets smaller.
  Compression compression = Compression::kNone;
};

struct SessionOptions {
  // The session outlives a broken connection: it is resumed over another, and each operation is
  // executed exactly once. Memory given to Write may be read again until a later operation is
  // answered. If the session is lost, operations that were not executed fail with UNAVAILABLE,
  // those that may have been with UNKNOWN, and a read whose bytes were lost in transit with
  // ABORTED.
  bool resumable = false;
  absl::Duration lease = absl::ZeroDuration();  // see Open in compute.proto; 0: the server's choice
};

struct ServerInfo {
  std::string server;
  uint32_t protocol = 0;
  uint32_t graph_form = 0;
  int64_t max_message_bytes = 0;
  int64_t chunk_bytes = 0;
  std::string local_socket;  // the socket that authenticates processes of its machine; empty: none
  std::string tenant;        // the tenant of this client on the server
  std::string data_address;  // the address for large writes and reads
  std::string bulk_address;  // the address of bulk sockets; empty: none
  Compression compression = Compression::kNone;  // as agreed
  bool binds_parts = false;                      // runs bind parts of buffers
  bool copies = false;                           // it copies between buffers
  bool gathers = false;                          // it takes several operations in one message
  bool operation_sockets = false;                // it takes operations on bulk sockets
  // Of its exchange of buffers with other servers, see HelloResponse in session.proto.
  std::string peer_key = {};
  std::vector<std::string> peers = {};
};

struct DeviceInfo {
  std::string name;
  std::string target;
  int64_t memory_limit = 0;
  int64_t memory_used = 0;
  int threads = 0;
  bool healthy = false;
  std::string health;   // why not
  std::string kind;     // of the driver; empty where the server does not say
  bool remote = false;  // the server reaches it over a network itself
  int64_t round_trip_ns = 0;
  double bytes_per_second = 0;
  // See Device::generation and memory_generation; 0 where the server does not say.
  uint64_t generation = 0, memory_generation = 0;
  bool of_tenant = false;  // these and the health are those of the caller's tenant
  // Operations in a second by their kind ("f32", "matrix f16"), as far as they are known.
  std::vector<std::pair<std::string, double>> rates = {};
};

// Whether a HOST:PORT or unix:PATH is reached from its own machine alone.
bool IsLoopbackAddress(std::string_view address);

// Thread-safe.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `address` is HOST:PORT or unix:PATH. Agrees on versions. UNAVAILABLE names the address and what
  // to do; FAILED_PRECONDITION when the versions do not meet.
  static absl::StatusOr<std::shared_ptr<Connection>> Connect(std::string_view address,
                                                             const ConnectOptions& options = {});

  // `notes`, unless null: which devices the server cannot use, and why, if it tells this client.
  absl::StatusOr<std::vector<DeviceInfo>> ListDevices(std::vector<std::string>* notes = nullptr);
  absl::StatusOr<std::map<std::string, double>> Stats();  // by metric name
  // Connects again now, where it otherwise would after a pause that grows with each failure, and
  // waits at most so long. Whether it is connected.
  bool Reconnect(absl::Duration limit);
  // The session holds the connection. Opening takes no round trip: a refusal appears in the first
  // answer.
  absl::StatusOr<std::unique_ptr<RemoteSession>> OpenSession(const SessionOptions& options = {});

  const ServerInfo& server() const { return server_; }
  const std::string& address() const { return address_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  // A separate connection to the server's address for large writes and reads.
  absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenDataChannel() const;
  const ConnectOptions& options() const { return options_; }
  // Adds this client's token to a call; every call needs it.
  absl::Status Authorize(grpc::ClientContext* context) { return tokens_.Authorize(context); }

 private:
  Connection(std::string address, const ConnectOptions& options,
             std::shared_ptr<grpc::Channel> channel);
  absl::Status Hello();

  const std::string address_;
  const ConnectOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;
  TokenSource tokens_;
  ServerInfo server_;
};

}  // namespace telegrad
