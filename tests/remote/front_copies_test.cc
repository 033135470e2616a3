// Long writes and reads of clients of a front: part by part, on bulk sockets, and ahead.
#include "tests/remote/two_daemons.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;

const std::string kThere = "b/CPU:0";

// So many words, no two neighbours alike.
std::vector<int32_t> Words(size_t count) {
  std::vector<int32_t> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<int32_t>(i * 2654435761u);
  return out;
}

// Clients of the front whose bytes have one connection.
class FrontCopies : public TwoDaemons {
 protected:
  std::unique_ptr<RemoteSession> OpenNarrow() {
    ConnectOptions one;
    one.data_streams = 1;
    return *(*Connection::Connect(front_->address(), one))->OpenSession();
  }
};

// Larger than what travels with the operations, and part by part.
TEST_F(FrontCopies, LargeWritesAndReadsArrive) {
  const std::vector<int32_t> in = Words(6 << 20);
  std::vector<int32_t> out(in.size(), -1);
  const auto session = *connection_->OpenSession();
  const auto bytes = static_cast<int64_t>(in.size() * 4);
  session->Alloc(1, bytes, kThere);
  session->Write(1, 0, Bytes(in));
  const auto read = session->Read(1, 0, Writable(out));
  ASSERT_TRUE(read.Get().ok()) << read.Get().status();
  EXPECT_TRUE(in == out);
  const std::vector<int32_t> part = {1, 2, 3};
  session->Write(1, 400, Bytes(part));
  out.assign(3, 0);
  ASSERT_TRUE(session->Read(1, 400, Writable(out)).Get().ok());
  EXPECT_THAT(out, ElementsAre(1, 2, 3));
}

// The megabytes that a long write or read comes in leave the session's connection there, too.
TEST_F(FrontCopies, LongWritesAndReadsTravelOnBulkSockets) {
  const std::vector<int32_t> in = Words(2 << 20);
  std::vector<int32_t> out(in.size(), -1);
  const auto session = *connection_->OpenSession();
  session->Alloc(1, static_cast<int64_t>(in.size() * 4), kThere);
  EXPECT_EQ(There("telegrad_bulk_sockets_admitted_total"), 0);
  session->Write(1, 0, Bytes(in));
  const auto read = session->Read(1, 0, Writable(out));
  ASSERT_TRUE(read.Get().ok()) << read.Get().status();
  EXPECT_TRUE(in == out);
  EXPECT_GT(There("telegrad_bulk_sockets_admitted_total"), 0);
}

// Nothing of what the far server answers comes through, and yet it is asked for the parts of a long
// read that follow those whose bytes are not there.
TEST_F(FrontCopies, LongReadsAreFetchedAhead) {
  const std::vector<int32_t> in = Words(4 << 20);
  std::vector<int32_t> out(in.size(), -1);
  const auto session = OpenNarrow();
  session->Alloc(1, static_cast<int64_t>(in.size() * 4), kThere);
  session->Write(1, 0, Bytes(in));
  ASSERT_TRUE(session->Sync().Get().ok());
  const double before = There("telegrad_operations_total");
  proxy_->HoldAnswers(true);
  const auto read = session->Read(1, 0, Writable(out));
  EXPECT_TRUE(Becomes([&] { return There("telegrad_operations_total") >= before + 4; }))
      << There("telegrad_operations_total") << " after " << before;
  proxy_->HoldAnswers(false);
  ASSERT_TRUE(read.Get().ok()) << read.Get().status();
  EXPECT_TRUE(in == out);
}

// Eight MiB of the quota are the client's credit, so there is no room for four parts beside that.
TEST_F(FrontCopies, LongReadsNeedNoRoomForWhatIsFetchedAhead) {
  Start({"--default-quota", "host_staging=10752KiB"}, {});
  const std::vector<int32_t> in = Words(4 << 20);
  std::vector<int32_t> out(in.size(), -1);
  const auto session = OpenNarrow();
  session->Alloc(1, static_cast<int64_t>(in.size() * 4), kThere);
  session->Write(1, 0, Bytes(in));
  const auto read = session->Read(1, 0, Writable(out));
  ASSERT_TRUE(read.Get().ok()) << read.Get().status();
  EXPECT_TRUE(in == out);
}

// Two clients of a tenant, whose credit is 16 MiB of its quota: what one fetches ahead leaves the
// other the room for the chunk that it needs.
TEST_F(FrontCopies, WhatIsFetchedAheadLeavesRoomForOthers) {
  Start({"--default-quota", "host_staging=18944KiB"}, {});
  const std::vector<int32_t> in = Words(4 << 20);
  std::vector<int32_t> first(in.size(), -1), second(in.size(), -1);
  const auto one = OpenNarrow(), other = OpenNarrow();
  for (const auto* session : {&one, &other}) {
    (*session)->Alloc(1, static_cast<int64_t>(in.size() * 4), kThere);
    (*session)->Write(1, 0, Bytes(in));
    ASSERT_TRUE((*session)->Sync().Get().ok());
  }
  const double before = There("telegrad_operations_total");
  proxy_->HoldAnswers(true);
  const auto read = one->Read(1, 0, Writable(first));
  EXPECT_TRUE(Becomes([&] { return There("telegrad_operations_total") > before; }));
  const double asked = There("telegrad_operations_total");
  const auto another = other->Read(1, 0, Writable(second));
  EXPECT_TRUE(Becomes([&] { return There("telegrad_operations_total") > asked; }));
  proxy_->HoldAnswers(false);
  ASSERT_TRUE(read.Get().ok()) << read.Get().status();
  ASSERT_TRUE(another.Get().ok()) << another.Get().status();
  EXPECT_TRUE(in == first && in == second);
}

// A buffer there is charged here too, and once: what of it travels with the operations is charged
// as bytes in transit.
TEST_F(FrontCopies, ABufferNeedsNoMoreMemoryThanItHas) {
  Start({"--default-quota", "device_memory=4MiB"}, {});
  ConnectOptions on_stream;
  on_stream.data_streams = 0;
  const auto session = *(*Connection::Connect(front_->address(), on_stream))->OpenSession();
  const std::vector<int32_t> in = Words(1 << 20);
  std::vector<int32_t> out(in.size(), -1);
  session->Alloc(1, static_cast<int64_t>(in.size() * 4), kThere);
  session->Write(1, 0, Bytes(in));
  const auto read = session->Read(1, 0, Writable(out));
  ASSERT_TRUE(read.Get().ok()) << read.Get().status();
  EXPECT_TRUE(in == out);
  session->Alloc(2, 4, kThere);
  EXPECT_TRUE(absl::IsResourceExhausted(session->Sync().Get().status()));
}

}  // namespace
}  // namespace telegrad
