// The devices of another Telegrad server as devices of this process. Memory, programs and runs are
// there; what is here is a session with that server for each tenant, on which the submissions of
// all queues travel in order and without waiting for answers (see remote_link.h), and a watch over
// whether the server answers at all (see remote_server.h).
//
// A device takes tensor graphs: one travels when it is loaded, and a run of it is one small
// message. A copy to or from memory of the host is a write or a read of that session, large ones on
// connections of their own; a copy between two devices of one server stays there, and one between
// devices of two servers goes from the one to the other where their operators allow it (see
// remote_copy.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cc/connection.h"
#include "devices/api/device.h"
#include "devices/api/host_queue.h"

namespace telegrad {

class RemotePeers;

struct RemoteOptions {
  std::string name;     // its devices are called NAME/CPU:0, ...
  std::string address;  // HOST:PORT or unix:PATH
  ClientCredentials credentials = {};
  // Of its bulk sockets: HOST:PORT in place of the one that the server names, or "none".
  std::string bulk_address = {};
  // How long opening waits for the server.
  absl::Duration connect_time = absl::Seconds(10);
  // How often the server is asked how it is, and how long it may fail to answer before its devices
  // are lost.
  absl::Duration interval = absl::Seconds(1);
  absl::Duration grace = absl::Seconds(30);
  // How long a stop waits for what is under way.
  absl::Duration drain = absl::Seconds(10);
  int queue_capacity = HostQueueOptions{}.capacity;
  absl::Duration wait_limit = HostQueueOptions{}.wait_limit;
  // Of all servers whose devices copy to each other; null: this one's do with nobody's.
  std::shared_ptr<RemotePeers> peers = nullptr;
};

// What the server at that address computes on; `notes` gets a line for each of its devices that is
// left out. UNAVAILABLE where no server answers in time. The devices that are returned act for
// nobody; see Device::ForTenant.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenRemote(const RemoteOptions& options,
                                                                std::vector<std::string>* notes);

}  // namespace telegrad
