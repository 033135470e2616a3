// Servers of which one is of the release before: as the front, as the server that would send, and
// as the one that would receive. Everything works: directly where both know how and their operators
// allow it, else by way of the front.
//
// TELEGRADD_PREVIOUS names that release's telegradd.
#include <cstdlib>

#include "engine/ir/content_hash.h"
#include "tests/remote/two_daemons.h"

namespace telegrad {
namespace {

const std::vector<std::string> kMaySend = {"--peer", "127.0.0.1:*"};

class PreviousRelease : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const previous = std::getenv("TELEGRADD_PREVIOUS");
    if (previous == nullptr) {
      GTEST_SKIP() << "TELEGRADD_PREVIOUS names no telegradd of an earlier release";
    }
    previous_ = previous;
    const testing::Output help = testing::RunProgram(previous_, {"--help"});
    ASSERT_EQ(help.exit_code, 0) << help.text;
    sends_ = help.text.find("--peer ") != std::string::npos;
  }
  std::unique_ptr<RunningDaemon> New(const std::vector<std::string>& more) {
    return std::make_unique<RunningDaemon>(more);
  }
  std::unique_ptr<RunningDaemon> Old(const std::vector<std::string>& more) {
    return std::make_unique<RunningDaemon>(more, "127.0.0.1:0", previous_);
  }
  // The same, allowed to send where it knows how.
  std::unique_ptr<RunningDaemon> OldSender() {
    return Old(sends_ ? kMaySend : std::vector<std::string>());
  }
  // A buffer goes back and forth between the two, each of which adds one to it every time.
  static void ExpectCopies(const std::unique_ptr<RunningDaemon>& front,
                           int64_t elements = kElements) {
    const FrozenGraph graph = IncrementGraph(elements);
    const auto connection = *Connection::Connect(front->address());
    const auto session = *connection->OpenSession();
    session->Alloc(1, 4 * elements, "a/CPU:0");
    session->Alloc(2, 4 * elements, "b/CPU:0");
    session->Put(graph.root());
    std::vector<int32_t> numbers(elements);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i);
    session->Write(1, 0, Bytes(numbers));
    const uint64_t one[] = {1}, two[] = {2};
    for (int i = 0; i < kRounds; ++i) {
      session->RunQuiet(ContentHash(graph.root()), one);
      session->CopyTold(2, 0, 1, 0, 4 * elements, Future<Done>());
      session->RunQuiet(ContentHash(graph.root()), two);
      session->CopyTold(1, 0, 2, 0, 4 * elements, Future<Done>());
    }
    std::vector<int32_t> out(numbers.size());
    ASSERT_TRUE(session->Read(1, 0, Writable(out)).Get().ok()) << session->status();
    for (int32_t& number : numbers) number += 2 * kRounds;
    EXPECT_TRUE(out == numbers);
  }
  // That the server has sent so much directly.
  static void ExpectSent(const std::unique_ptr<RunningDaemon>& by, int64_t bytes) {
    const auto stats = (*Connection::Connect(by->address()))->Stats();
    ASSERT_TRUE(stats.ok()) << stats.status();
    const auto sent = stats->find("telegrad_peer_sent_bytes_total");
    EXPECT_EQ(sent == stats->end() ? 0 : static_cast<int64_t>(sent->second), bytes);
  }
  static std::vector<std::string> Remotes(const std::unique_ptr<RunningDaemon>& a,
                                          const std::unique_ptr<RunningDaemon>& b) {
    return {"--remote", "a=" + a->address(), "--remote", "b=" + b->address()};
  }

  static constexpr int kRounds = 3;
  static constexpr int64_t kElements = 1 << 20;
  static constexpr int64_t kBytes = 4 * kElements * kRounds;  // that each of the two sends

  std::string previous_;
  bool sends_ = false;  // that release to other servers
};

// Which may know that they can send to each other, or not.
TEST_F(PreviousRelease, AsTheFront) {
  const auto a = New(kMaySend), b = New(kMaySend);
  ExpectCopies(Old(Remotes(a, b)));
}

TEST_F(PreviousRelease, AsOneOfTheServers) {
  const auto a = New(kMaySend), b = Old({});
  ExpectCopies(New(Remotes(a, b)));
  ExpectSent(a, 0);
  ExpectSent(b, 0);
}

TEST_F(PreviousRelease, AsBothServers) {
  const auto a = Old({}), b = Old({});
  ExpectCopies(New(Remotes(a, b)));
  ExpectSent(a, 0);
  ExpectSent(b, 0);
}

// Directly, by the protocol of the older of the two.
TEST_F(PreviousRelease, AsOneOfTheServersThatSend) {
  const auto a = New(kMaySend), b = OldSender();
  ExpectCopies(New(Remotes(a, b)));
  ExpectSent(a, sends_ ? kBytes : 0);
  ExpectSent(b, sends_ ? kBytes : 0);
}

TEST_F(PreviousRelease, AsBothServersThatSend) {
  const auto a = OldSender(), b = OldSender();
  ExpectCopies(New(Remotes(a, b)));
  ExpectSent(a, sends_ ? kBytes : 0);
  ExpectSent(b, sends_ ? kBytes : 0);
}

// More than 64 MiB, which fronts of earlier releases sent in several transfers: this release's is
// one.
TEST_F(PreviousRelease, TakesAndSendsALargeBuffer) {
  constexpr int64_t kLarge = 18 * kElements;
  const auto a = New(kMaySend), b = OldSender();
  ExpectCopies(New(Remotes(a, b)), kLarge);
  ExpectSent(a, sends_ ? 18 * kBytes : 0);
  ExpectSent(b, sends_ ? 18 * kBytes : 0);
}

}  // namespace
}  // namespace telegrad
