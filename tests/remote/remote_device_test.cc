// The driver of remote devices against a real server, through the interface that the daemon's
// pool uses.
#include "devices/remote/remote_device.h"

#include "engine/ir/content_hash.h"
#include "engine/wire/graph_bytes.h"
#include "tests/devices/fixture.h"
#include "tests/remote/two_daemons.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

class RemoteDevices : public ::testing::Test {
 protected:
  std::vector<std::unique_ptr<Device>> Open(RemoteOptions options = {}) {
    options.name = "r";
    options.address = far_.address();
    auto devices = OpenRemote(options, &notes_);
    EXPECT_TRUE(devices.ok()) << devices.status();
    return devices.ok() ? *std::move(devices) : std::vector<std::unique_ptr<Device>>();
  }

  RunningDaemon far_{{"--cpu-devices", "2"}};
  std::unique_ptr<Device> host_ = OpenHost();
  std::vector<std::string> notes_;
};

// Between two devices of one server nothing passes through here.
TEST_F(RemoteDevices, CopiesBetweenDevicesOfAServerStayThere) {
  const auto devices = Open();
  ASSERT_EQ(devices.size(), 2u);
  Device &first = *devices[0], &second = *devices[1];
  EXPECT_EQ(second.AccessTo(first), PeerAccess{PeerPath::kDirect});
  EXPECT_FALSE(NeedsHost(first, second));
  const BufferView a = Whole(*first.Alloc(8)), b = Whole(*second.Alloc(8));
  const BufferView out = HostBuffer(*host_, "????????");
  ASSERT_TRUE(Copy(first, a, HostBuffer(*host_, "12345678")).ok());
  const auto across = Copy(CopyDevice(second, first), b, a);
  ASSERT_TRUE(across.ok()) << across.status();
  ASSERT_EQ(Copy(second, out, b, {*across})->Wait(), absl::OkStatus());
  EXPECT_EQ(Bytes(out), "12345678");
}

TEST_F(RemoteDevices, TwoServersNeedTheHost) {
  const RunningDaemon other;
  const auto devices = Open();
  auto others = OpenRemote({.name = "o", .address = other.address()}, nullptr);
  ASSERT_TRUE(others.ok()) << others.status();
  EXPECT_TRUE(NeedsHost(*devices[0], *(*others)[0]));
  EXPECT_EQ(devices[0]->AccessTo(*(*others)[0]), PeerAccess{});
  EXPECT_FALSE(NeedsHost(*devices[0], *host_));
  const BufferView theirs = Whole(*(*others)[0]->Alloc(4));
  const auto refused = Copy(*devices[0], Whole(*devices[0]->Alloc(4)), theirs);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("cannot reach"));
}

// Bytes that a read brings are there before they are sent on, though nobody waits for its point.
TEST_F(RemoteDevices, AWriteSendsWhatAReadBeforeItBrought) {
  const auto devices = Open();
  Device& device = *devices[0];
  const BufferView a = Whole(*device.Alloc(4)), b = Whole(*device.Alloc(4));
  const BufferView through = HostBuffer(*host_, "????"), out = HostBuffer(*host_, "????");
  for (const char* bytes : {"1234", "5678", "9abc"}) {
    ASSERT_TRUE(Copy(device, a, HostBuffer(*host_, bytes)).ok());
    ASSERT_TRUE(Copy(device, through, a).ok());
    ASSERT_TRUE(Copy(device, b, through).ok());
    ASSERT_EQ(Copy(device, out, b)->Wait(), absl::OkStatus());
    EXPECT_EQ(Bytes(out), bytes);
  }
}

TEST_F(RemoteDevices, EachTenantHasASessionOfItsOwn) {
  const auto devices = Open();
  const auto there = *Connection::Connect(far_.address());
  const auto alice = devices[0]->ForTenant("local"), same = devices[1]->ForTenant("local");
  EXPECT_EQ(alice->name(), "r/CPU:0");
  EXPECT_TRUE(alice->AccessTo(*same).reaches()) << "one session for all devices";
  EXPECT_EQ(alice->AccessTo(*devices[0]), PeerAccess{});
  const BufferView buffer = Whole(*alice->Alloc(4));
  ASSERT_EQ(Copy(*alice, buffer, HostBuffer(*host_, "1234"))->Wait(), absl::OkStatus());
  const BufferView other = Whole(*devices[0]->Alloc(4));
  ASSERT_EQ(Copy(*devices[0], other, HostBuffer(*host_, "1234"))->Wait(), absl::OkStatus());
  EXPECT_EQ(there->Stats()->at("telegrad_sessions"), 2);
  EXPECT_EQ(devices[0]->memory_used(), 8);
  EXPECT_FALSE(Copy(*alice, buffer, other).ok()) << "memory of another tenant's session";
}

TEST_F(RemoteDevices, GraphsThatAreNoneAreRefusedThere) {
  const auto devices = Open();
  const auto refused = devices[0]->Load({.name = "x", .binary = "no graph"});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), ::testing::StartsWith("r: "));
}

TEST_F(RemoteDevices, LaunchesAreNoCopies) {
  const auto devices = Open();
  Device& device = *devices[0];
  Command run;
  run.launch.program = *device.Load({.name = "x", .binary = GraphBytes(IncrementGraph(4).root())});
  run.launch.arguments = {{0, 0}};
  const auto refused =
      device.queue(QueueKind::kCopy).Submit(*device.Encode({run}), {Whole(*device.Alloc(16))}, {});
  EXPECT_EQ(refused.status(),
            absl::InvalidArgumentError(
                "r/CPU:0 copy: a launch was submitted to a queue that takes copies only"));
}

// The cost that the far side predicts is known here.
TEST_F(RemoteDevices, TellsWhatAGraphCosts) {
  const auto devices = Open();
  const FrozenGraph graph = IncrementGraph(1 << 16);
  const auto program = devices[0]->Load({.name = "x",
                                         .binary = GraphBytes(graph.root()),
                                         .hash = std::string(ContentHash(graph.root()).view())});
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_GE((*program)->cost().bytes, 4 * (1 << 16));
  EXPECT_GT((*program)->cost().seconds, 0);
}

// Also of a graph that it has: one of many bytes is not sent twice.
TEST_F(RemoteDevices, TellsWhatAGraphCostsThatItHas) {
  const auto devices = Open();
  Graph g;
  const UOp x = g.Param(0, DType::kInt32, Shape{4}, 0);
  UOp sum = x;
  for (int i = 0; i < 2000; ++i) sum = g.Make(Op::kXor, {g.Make(Op::kAdd, {sum, x}), x});
  const FrozenGraph graph = Freeze(g.Make(Op::kSink, {g.Make(Op::kStore, {x, sum})}));
  const ProgramImage image{.name = "x",
                           .binary = GraphBytes(graph.root()),
                           .hash = std::string(ContentHash(graph.root()).view())};
  ASSERT_GT(image.binary.size(), 16u << 10);
  const auto first = devices[0]->Load(image), again = devices[0]->Load(image);
  ASSERT_TRUE(first.ok() && again.ok()) << first.status() << again.status();
  EXPECT_GT((*first)->cost().flops, 0);
  EXPECT_EQ((*again)->cost().flops, (*first)->cost().flops);
  EXPECT_EQ((*again)->cost().seconds, (*first)->cost().seconds);
}

// A server that has dropped a graph, as one that keeps few, is sent it once more.
TEST(RemoteDevice, AGraphThatWasDroppedIsSentAgain) {
  const RunningDaemon far({"--default-quota", "graphs=1"});
  const auto devices = *OpenRemote({.name = "r", .address = far.address()}, nullptr);
  Device& device = *devices[0];
  const auto load = [&](int64_t elements) {
    const FrozenGraph graph = IncrementGraph(elements);
    Command run;
    run.launch.program = *device.Load({.name = "x", .binary = GraphBytes(graph.root())});
    run.launch.arguments = {{0, 0}};
    return *device.Encode({run});
  };
  const BufferView buffer = Whole(*device.Alloc(64));
  const auto four = load(4), eight = load(8);  // the second drops the first
  const auto dropped = device.queue().Submit(four, {buffer}, {});
  EXPECT_EQ(dropped->Wait().code(), absl::StatusCode::kUnavailable) << dropped->Wait();
  EXPECT_THAT(std::string(dropped->Wait().message()), HasSubstr("sent again with its next run"));
  const BufferView fresh = Whole(*device.Alloc(64));
  EXPECT_EQ(device.queue().Submit(four, {fresh}, {})->Wait(), absl::OkStatus());
}

}  // namespace
}  // namespace telegrad
