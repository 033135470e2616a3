// The operations of a front leave gRPC for bulk sockets where the far server has some, and come
// back where these cannot be had.
#include "devices/api/timeline.h"
#include "engine/ir/content_hash.h"
#include "engine/net/tcp.h"
#include "tests/remote/two_daemons.h"

namespace telegrad {
namespace {

constexpr char kFarDevice[] = "b/CPU:0";

class FrontSockets : public TwoDaemons {
 protected:
  void SetUp() override {}
  // So many runs of a counter on the far device, through breaks of its connections.
  void Count(int runs, const std::function<void(int)>& between = nullptr) {
    const FrozenGraph graph = IncrementGraph(4);
    const auto session = *connection_->OpenSession();
    const uint64_t handles[] = {1};
    session->Alloc(1, 16, kFarDevice);
    session->Put(graph.root());
    for (int i = 0; i < runs; ++i) {
      if (between) between(i);
      const auto run = session->Run(ContentHash(graph.root()), handles).Get();
      ASSERT_TRUE(run.ok()) << i << ": " << run.status();
    }
    std::vector<int32_t> words(4);
    ASSERT_TRUE(session->Read(1, 0, Writable(words)).Get().ok()) << session->status();
    EXPECT_EQ(words, std::vector<int32_t>(4, runs));
    EXPECT_EQ(There("telegrad_runs_total"), runs) << "each once";
  }
  double Admitted() { return There("telegrad_bulk_sockets_admitted_total"); }
};

TEST_F(FrontSockets, CarryOperations) {
  Start({}, {});
  Count(20);
  EXPECT_EQ(Admitted(), 1);
  EXPECT_EQ(There("telegrad_bulk_sockets"), 1) << "while the front's session is there";
}

TEST_F(FrontSockets, AreNotUsedWhereTheyAreNotWanted) {
  Start({}, {"--bulk-listen", "none"});
  Count(5);
  EXPECT_EQ(Admitted(), 0);
}

TEST_F(FrontSockets, ThatCannotBeReachedLeaveOperationsWithGrpc) {
  Start({}, {});
  proxy_->ConnectTo("127.0.0.1:1", 1);  // where nobody listens
  Count(20);
  EXPECT_EQ(Admitted(), 0);
}

TEST_F(FrontSockets, ThatBreakAreReplacedAndNothingRunsTwice) {
  Start({}, {});
  Count(60, [&](int i) {
    if (i % 6 == 5) proxy_->Cut();
  });
  EXPECT_GT(Admitted(), 1);
}

// Behind the ticket, and before the session is resumed.
TEST_F(FrontSockets, ThatBreakAsTheyOpenLeaveOperationsWithGrpc) {
  Start({}, {});
  proxy_->CutEachAfter(100, 1000, /*door=*/1);
  Count(20);
  EXPECT_EQ(proxy_->cuts(), 3) << "attempts in a row";
}

// What is sent there never arrives whole, as where something on the way takes no long packets.
TEST_F(FrontSockets, ThatBreakUnderEveryOperationLeaveThemToGrpc) {
  Start({}, {});
  proxy_->CutEachBefore(4000, 100, /*door=*/1);
  const auto session = *connection_->OpenSession();
  std::vector<int32_t> words(2000), heard(words.size());
  for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<int32_t>(i * 77);
  session->Alloc(1, 4 * words.size(), kFarDevice);
  session->WriteCopy(1, 0, Bytes(words));
  ASSERT_TRUE(session->Read(1, 0, Writable(heard)).Get().ok()) << session->status();
  EXPECT_EQ(heard, words);
  EXPECT_LE(proxy_->cuts(), 4) << "and not as often as it breaks";
}

// What takes their bytes and says nothing takes longer than the lease of a session.
TEST_F(FrontSockets, ThatAreSwallowedDoNotCostAShortLease) {
  Start({}, {"--session-lease", "1500"});
  const UniqueFd swallows = *ListenTcp("127.0.0.1:0");
  proxy_->ConnectTo(StrCat("127.0.0.1:", PortOf(swallows)), 1);
  Count(5);
}

// What admits the socket says nothing more.
TEST_F(FrontSockets, ThatFallSilentLeaveOperationsWithGrpc) {
  Start({}, {});
  proxy_->SilenceAfterOneAnswer(1);
  Count(5);
  EXPECT_EQ(Admitted(), 1);
}

// The memory of a large write may ask its session something as it goes, a write for instance: it
// goes without the lock of the transfers, as soon as the write is answered.
TEST(UploadedMemory, MayAskItsSession) {
  const RunningDaemon daemon;
  auto connection = Connection::Connect(daemon.address());
  ASSERT_TRUE(connection.ok()) << connection.status();
  auto session = (*connection)->OpenSession();
  ASSERT_TRUE(session.ok()) << session.status();
  constexpr int64_t kBytes = 8 << 20;
  for (uint64_t handle : {1, 2}) (*session)->Alloc(handle, kBytes);
  const std::vector<std::byte> bytes(kBytes, std::byte{7});
  const auto gone = std::make_shared<Timeline>();
  std::shared_ptr<const void> keep(bytes.data(), [&, gone](const void*) {
    (*session)->Write(2, 0, bytes);
    gone->Signal(1);
  });
  (*session)->Write(1, 0, bytes, std::move(keep));
  EXPECT_EQ((*session)->Sync().Get().status(), absl::OkStatus());
  ASSERT_TRUE(gone->Wait(1, absl::Seconds(60)).ok());
  std::vector<std::byte> read(kBytes);
  EXPECT_EQ((*session)->Read(2, 0, read).Get().status(), absl::OkStatus());
  EXPECT_EQ(read, bytes);
}

}  // namespace
}  // namespace telegrad
