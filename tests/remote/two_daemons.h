// Two real daemons, of which one, the front, offers the devices of the other, the far one, through
// a proxy of the test's.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/cutting_proxy.h"
#include "tests/server/daemon_fixture.h"

namespace telegrad {

// A daemon on a free port, or on the given one.
class RunningDaemon {
 public:
  explicit RunningDaemon(std::vector<std::string> more = {},
                         const std::string& listen = "127.0.0.1:0",
                         const std::string& program = TELEGRADD) {
    std::vector<std::string> args = {"--listen",     listen,       "--cuda-devices", "0",
                                     "--cpu-memory", "1073741824", "--log-level",    "off"};
    args.insert(args.end(), more.begin(), more.end());
    process_ = std::make_unique<testing::Process>(program, args);
    address_ = process_->Line("listening on ");
    EXPECT_FALSE(address_.empty()) << program << " ended before it listened";
    if (std::ranges::find(more, "none") == more.end())
      bulk_address_ = process_->Line("bulk sockets on ");
    process_->ReadOn();
  }
  const std::string& address() const { return address_; }
  const std::string& bulk_address() const { return bulk_address_; }  // empty: none
  testing::Process& process() { return *process_; }

 private:
  std::unique_ptr<testing::Process> process_;
  std::string address_, bulk_address_;
};

// Whether it becomes true within a time that only a machine without hope needs.
inline bool Becomes(const std::function<bool()>& what) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!what()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

class TwoDaemons : public ::testing::Test {
 protected:
  void SetUp() override { Start({}, {}); }

  void Start(std::vector<std::string> front, std::vector<std::string> far) {
    front_.reset();
    proxy_.reset();
    far_ = std::make_unique<RunningDaemon>(std::move(far));
    ASSERT_THAT(far_->address(), ::testing::HasSubstr("127.0.0.1:"));
    proxy_ = std::make_unique<fakes::CuttingProxy>(far_->address());
    front.insert(front.end(), {"--remote", "b=" + proxy_->address()});
    if (!far_->bulk_address().empty()) {
      front.insert(front.end(), {"--remote-bulk", "b=" + proxy_->AddDoor(far_->bulk_address())});
    }
    front_ = std::make_unique<RunningDaemon>(std::move(front));
    ASSERT_THAT(front_->address(), ::testing::HasSubstr("127.0.0.1:"));
    connection_ = Connect(front_->address());
    there_ = Connect(far_->address());
  }
  static std::shared_ptr<Connection> Connect(const std::string& address,
                                             const ConnectOptions& options = {}) {
    auto connection = Connection::Connect(address, options);
    EXPECT_TRUE(connection.ok()) << connection.status();
    return connection.ok() ? *connection : nullptr;
  }
  // Of the front: the device of that name.
  DeviceInfo Device(const std::string& name) {
    const auto devices = connection_->ListDevices();
    if (devices.ok()) {
      for (const DeviceInfo& device : *devices) {
        if (device.name == name) return device;
      }
    }
    return {};
  }
  double There(const std::string& metric) { return there_->Stats()->at(metric); }

  // Kills the far server and starts another, at whatever port, which the proxy leads to.
  void StartFarAnew() {
    KillFar();
    far_ = std::make_unique<RunningDaemon>();
    proxy_->ConnectTo(far_->address());
    proxy_->ConnectTo(far_->bulk_address(), 1);
  }
  void KillFar() {
    there_.reset();
    if (far_ != nullptr) far_->process().Signal(SIGKILL);
    far_.reset();
  }

  std::unique_ptr<RunningDaemon> far_;
  std::unique_ptr<fakes::CuttingProxy> proxy_;
  std::unique_ptr<RunningDaemon> front_;
  std::shared_ptr<Connection> connection_, there_;  // to the front, and straight to the other
};

// Slot 0 becomes slot 0 + 1, `elements` words on one device that the buffer decides.
inline FrozenGraph IncrementGraph(int64_t elements) {
  Graph g;
  const int64_t dims[] = {elements};
  const UOp x = g.Param(0, DType::kInt32, dims, 0);
  const UOp sum = g.Make(Op::kAdd, {x, g.Const(DType::kInt32, 1)});
  return Freeze(g.Make(Op::kSink, {g.Make(Op::kStore, {x, sum})}));
}

}  // namespace telegrad
