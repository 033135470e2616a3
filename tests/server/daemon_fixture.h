// The real daemon, started on port 0 and a unix socket, with a connection to it.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client/cc/connection.h"
#include "client/cc/remote_session.h"
#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/double_graph.h"
#include "tests/server/process.h"

namespace telegrad {

template <typename T>
std::span<const std::byte> Bytes(const std::vector<T>& v) {
  return std::as_bytes(std::span(v));
}

template <typename T>
std::span<std::byte> Writable(std::vector<T>& v) {
  return std::as_writable_bytes(std::span(v));
}

class DaemonTest : public ::testing::Test {
 protected:
  void SetUp() override { Start({}); }

  void Start(std::vector<std::string> more) {
    socket_ = StrCat(::testing::TempDir(), "telegrad_", getpid(), ".sock");
    std::vector<std::string> args = {
        "--listen",    "127.0.0.1:0",  "--listen",   "unix:" + socket_, "--metrics",
        "127.0.0.1:0", "--cpu-memory", "1073741824", "--log-level",     "off"};
    args.insert(args.end(), more.begin(), more.end());
    daemon_.reset();
    daemon_ = std::make_unique<testing::Process>(TELEGRADD, args);
    metrics_ = daemon_->Line("metrics on http://127.0.0.1:");
    address_ = daemon_->Line("listening on ");
    ASSERT_THAT(address_, ::testing::HasSubstr("127.0.0.1:"))
        << (address_.empty() ? daemon_->Wait().text : "");
    if (std::ranges::find(args, "--http") != args.end()) {
      http_ = daemon_->Line("http listening on ");
    }
    daemon_->ReadOn();
    const auto connection = Connection::Connect(address_, options_);
    ASSERT_TRUE(connection.ok()) << connection.status();
    connection_ = *connection;
  }
  static std::shared_ptr<Connection> Connect(const std::string& address) {
    auto connection = Connection::Connect(address);
    EXPECT_TRUE(connection.ok()) << connection.status();
    return connection.ok() ? *connection : nullptr;
  }
  std::unique_ptr<RemoteSession> Session() { return *connection_->OpenSession(); }
  double Stat(const std::string& name) { return connection_->Stats()->at(name); }
  // Waits for a gauge: what a client leaves is freed a moment after it is gone.
  bool BecomesZero(const std::string& name) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (Stat(name) != 0) {
      if (std::chrono::steady_clock::now() > deadline) return false;
    }
    return true;
  }

  ConnectOptions options_;  // of connection_
  std::string socket_, metrics_, address_, http_;
  std::unique_ptr<testing::Process> daemon_;
  std::shared_ptr<Connection> connection_;
};

}  // namespace telegrad
