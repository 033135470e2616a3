// Long writes and reads of clients of a front: part by part, on bulk sockets, and ahead.
#include "tests/remote/two_daemons.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;

const std::string kThere = "b/CPU:0";

// Larger than what travels with the operations, and part by part.
TEST_F(TwoDaemons, LargeWritesAndReadsArrive) {
  std::vector<int32_t> in(6 << 20), out(in.size(), -1);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int32_t>(i * 2654435761u);
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
TEST_F(TwoDaemons, LongWritesAndReadsTravelOnBulkSockets) {
  std::vector<int32_t> in(2 << 20), out(in.size(), -1);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int32_t>(i * 2654435761u);
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
TEST_F(TwoDaemons, LongReadsAreFetchedAhead) {
  std::vector<int32_t> in(4 << 20), out(in.size(), -1);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int32_t>(i * 2654435761u);
  ConnectOptions one;
  one.data_streams = 1;
  const auto connection = *Connection::Connect(front_->address(), one);
  const auto session = *connection->OpenSession();
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
TEST_F(TwoDaemons, LongReadsNeedNoRoomForWhatIsFetchedAhead) {
  Start({"--default-quota", "host_staging=10752KiB"}, {});
  std::vector<int32_t> in(4 << 20), out(in.size(), -1);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int32_t>(i * 2654435761u);
  ConnectOptions one;
  one.data_streams = 1;
  const auto connection = *Connection::Connect(front_->address(), one);
  const auto session = *connection->OpenSession();
  session->Alloc(1, static_cast<int64_t>(in.size() * 4), kThere);
  session->Write(1, 0, Bytes(in));
  const auto read = session->Read(1, 0, Writable(out));
  ASSERT_TRUE(read.Get().ok()) << read.Get().status();
  EXPECT_TRUE(in == out);
}

}  // namespace
}  // namespace telegrad
