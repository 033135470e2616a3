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
  std::string device = {};  // of buffers and models that name none; empty: the server's first
  // Connections over which large writes and reads of a session travel. 0: they stay on the
  // session's.
  int data_streams = 2;
  std::string data_address = {};  // where they go instead of where the server says
  // Whether they leave gRPC for plain sockets where the server has some.
  bool bulk_sockets = true;
  std::string bulk_address =
      {};  // where those connect to, likewise; with a data_address only there
  // Of their chunks, where it makes them smaller and the server takes it: for slow networks.
  Compression compression = Compression::kNone;
};

struct SessionOptions {
  // The session outlives a broken connection: it is resumed over another, and nothing is run twice
  // or forgotten. Memory given to Write is then sent from, or read again, until a later operation
  // is answered. Where the session was lost all the same, what was not carried out fails with
  // UNAVAILABLE and what may have been with UNKNOWN; a read whose bytes were lost on their way with
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
  std::string local_socket;  // on which processes of its machine present themselves; empty: none
  std::string tenant;        // whom the server takes this client for
  std::string data_address;  // where large writes and reads go
  std::string bulk_address;  // and on sockets without gRPC; empty: nowhere
  Compression compression = Compression::kNone;  // as agreed
  bool binds_parts = false;                      // runs bind parts of buffers
  bool copies = false;                           // it copies between buffers
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
};

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
  // The session keeps the connection. Opening takes no round trip: a refusal shows in the first
  // answer.
  absl::StatusOr<std::unique_ptr<RemoteSession>> OpenSession(const SessionOptions& options = {});

  const ServerInfo& server() const { return server_; }
  const std::string& address() const { return address_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  // A connection of its own to where the server takes large writes and reads.
  absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenDataChannel() const;
  const ConnectOptions& options() const { return options_; }
  // Puts this client's token onto a call; every call needs it.
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
