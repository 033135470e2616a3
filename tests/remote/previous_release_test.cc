// Servers of which one is of the release before: as the front, as the server that would send, and
// as the one that would receive. Everything works, by way of the front where a server may not send,
// or does not know that buffers can travel directly.
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
  }
  std::unique_ptr<RunningDaemon> New(const std::vector<std::string>& more) {
    return std::make_unique<RunningDaemon>(more);
  }
  std::unique_ptr<RunningDaemon> Old(const std::vector<std::string>& more) {
    return std::make_unique<RunningDaemon>(more, "127.0.0.1:0", previous_);
  }
  // A buffer goes back and forth between the two, each of which adds one to it every time.
  static void ExpectCopies(const std::unique_ptr<RunningDaemon>& front) {
    constexpr int64_t kElements = 1 << 20;
    constexpr int kRounds = 3;
    const FrozenGraph graph = IncrementGraph(kElements);
    const auto connection = *Connection::Connect(front->address());
    const auto session = *connection->OpenSession();
    session->Alloc(1, 4 * kElements, "a/CPU:0");
    session->Alloc(2, 4 * kElements, "b/CPU:0");
    session->Put(graph.root());
    std::vector<int32_t> numbers(kElements);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i);
    session->Write(1, 0, Bytes(numbers));
    const uint64_t one[] = {1}, two[] = {2};
    for (int i = 0; i < kRounds; ++i) {
      session->RunQuiet(ContentHash(graph.root()), one);
      session->CopyTold(2, 0, 1, 0, 4 * kElements, Future<Done>());
      session->RunQuiet(ContentHash(graph.root()), two);
      session->CopyTold(1, 0, 2, 0, 4 * kElements, Future<Done>());
    }
    std::vector<int32_t> out(numbers.size());
    ASSERT_TRUE(session->Read(1, 0, Writable(out)).Get().ok()) << session->status();
    for (int32_t& number : numbers) number += 2 * kRounds;
    EXPECT_TRUE(out == numbers);
  }
  static void ExpectNothingSent(const std::unique_ptr<RunningDaemon>& by) {
    const auto stats = (*Connection::Connect(by->address()))->Stats();
    ASSERT_TRUE(stats.ok()) << stats.status();
    const auto sent = stats->find("telegrad_peer_sent_bytes_total");
    EXPECT_TRUE(sent == stats->end() || sent->second == 0) << sent->second;
  }
  static std::vector<std::string> Remotes(const std::unique_ptr<RunningDaemon>& a,
                                          const std::unique_ptr<RunningDaemon>& b) {
    return {"--remote", "a=" + a->address(), "--remote", "b=" + b->address()};
  }

  std::string previous_;
};

// Which may know that they can send to each other, or not.
TEST_F(PreviousRelease, AsTheFront) {
  const auto a = New(kMaySend), b = New(kMaySend);
  ExpectCopies(Old(Remotes(a, b)));
}

TEST_F(PreviousRelease, AsOneOfTheServers) {
  const auto a = New(kMaySend), b = Old({});
  ExpectCopies(New(Remotes(a, b)));
  ExpectNothingSent(a);
  ExpectNothingSent(b);
}

TEST_F(PreviousRelease, AsBothServers) {
  const auto a = Old({}), b = Old({});
  ExpectCopies(New(Remotes(a, b)));
  ExpectNothingSent(a);
  ExpectNothingSent(b);
}

}  // namespace
}  // namespace telegrad
