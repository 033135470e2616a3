// Listening sockets that the service manager opened: their connections are accepted here and given
// to gRPC, which listens only on addresses that it binds itself.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/unique_fd.h"
#include "grpcpp/grpcpp.h"
#include "server/admin/limited_log.h"

namespace telegrad {

class PassedListener {
 public:
  struct Row {
    int fd;  // listening, not blocking; not owned
    std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  };

  // After the servers of the acceptors were started. Until its end it accepts connections.
  static absl::StatusOr<std::unique_ptr<PassedListener>> Start(std::vector<Row> rows);
  ~PassedListener();

 private:
  explicit PassedListener(std::vector<Row> rows);
  void Loop();
  bool Accept(const Row& row);

  const std::vector<Row> rows_;
  const UniqueFd stop_;
  LimitedLog refused_;
  std::thread thread_;
};

}  // namespace telegrad
