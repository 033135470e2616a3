// The message envelope: however a message is cut into pieces, it is taken apart the same way; what
// protobuf itself refuses is refused.
#include "engine/wire/envelope.h"

#include <algorithm>
#include <random>

#include "gtest/gtest.h"
#include "telegrad/v1/compute.pb.h"

namespace telegrad {
namespace {

constexpr int kField = 15;

std::string Payload(const Envelope& envelope) {
  std::string out;
  for (const ByteSpan& piece : envelope.payload) {
    out.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  return out;
}

ByteSpan AsPiece(std::string_view s) {
  return {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
}

std::vector<ByteSpan> Cut(std::string_view message, std::mt19937_64& random) {
  std::vector<ByteSpan> pieces;
  while (!message.empty()) {
    const size_t limit = random() % 4 == 0 ? 40 : 3;
    const size_t n = std::min<size_t>(random() % limit, message.size());
    pieces.push_back(AsPiece(message.substr(0, n)));
    message.remove_prefix(n);
  }
  return pieces;
}

// Every occurrence of a repeated field, however the message is cut.
TEST(EnvelopeTest, SeveralPayloads) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 500; ++round) {
    std::string message;
    std::vector<std::string> data(random() % 5);
    for (std::string& one : data) {
      one.assign(random() % 300, 'y');
      message += EnvelopeHead("", kField, one.size()) + one;
      v1::ExecuteRequest head;
      head.set_op_id(random());
      message += head.SerializeAsString();
    }
    Payloads split;
    ASSERT_TRUE(SplitPayloads(Cut(message, random), kField, 1 << 20, 5, &split).ok());
    ASSERT_EQ(split.payloads.size(), data.size());
    for (size_t i = 0; i < data.size(); ++i) {
      std::string joined;
      for (const ByteSpan& piece : split.payloads[i]) {
        joined.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      }
      EXPECT_EQ(joined, data[i]);
    }
    v1::ExecuteRequest head;
    EXPECT_TRUE(head.ParseFromString(split.head));
    if (data.empty()) continue;
    EXPECT_TRUE(absl::IsResourceExhausted(
        SplitPayloads(Cut(message, random), kField, 1 << 20, data.size() - 1, &split)));
    EXPECT_TRUE(absl::IsResourceExhausted(
        SplitPayloads(Cut(message, random), kField, split.head.size() / 2, 5, &split)));
    message.pop_back();
    EXPECT_FALSE(SplitPayloads(Cut(message, random), kField, 1 << 20, 5, &split).ok());
  }
}

TEST(EnvelopeTest, AnyCutGivesTheSame) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    v1::ExecuteRequest request;
    request.set_op_id(random() >> (random() % 64));
    request.mutable_write()->set_handle(random() >> (random() % 64));
    request.mutable_write()->set_offset(random() >> (random() % 64));
    std::string data(random() % 300, 'x');
    for (char& c : data) c = static_cast<char>(random());
    request.set_data(data);
    const std::string message = request.SerializeAsString();

    Envelope envelope;
    ASSERT_TRUE(SplitEnvelope(Cut(message, random), kField, &envelope).ok());
    EXPECT_EQ(HeadBytes(Cut(message, random), kField).value(), envelope.head.size());
    EXPECT_EQ(Payload(envelope), data);
    EXPECT_EQ(envelope.payload_bytes, data.size());
    request.clear_data();
    v1::ExecuteRequest head;
    ASSERT_TRUE(head.ParseFromString(envelope.head));
    EXPECT_EQ(head.SerializeAsString(), request.SerializeAsString());
    // And back, as protobuf reads it.
    v1::ExecuteRequest again;
    ASSERT_TRUE(again.ParseFromString(EnvelopeHead(envelope.head, kField, data.size()) + data));
    EXPECT_EQ(again.data(), data);
  }
}

// Against protobuf: on mutated messages both accept or both refuse, and read the same payload.
// Protobuf also refuses what is malformed deeper down, which is not the envelope's business.
TEST(EnvelopeTest, MutatedMessagesAgreeWithProtobuf) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    v1::ExecuteRequest request;
    request.set_op_id(random() % 1000);
    request.mutable_run()->set_hash("0123456789");
    request.mutable_run()->add_handles(random());
    request.set_data("payload");
    std::string message = request.SerializeAsString();
    for (int i = random() % 4; i >= 0; --i) {
      message[random() % message.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) message.resize(random() % message.size());
    if (random() % 4 == 0) message += message;
    Envelope envelope;
    const absl::Status status = SplitEnvelope(Cut(message, random), kField, &envelope);
    // In one piece it is the same, also of payloads that come twice.
    const ByteSpan whole[] = {AsPiece(message)};
    Envelope of_whole;
    const absl::Status same = SplitEnvelope(whole, kField, &of_whole);
    EXPECT_EQ(same, status);
    if (same.ok()) {
      EXPECT_EQ(of_whole.head, envelope.head);
      EXPECT_EQ(Payload(of_whole), Payload(envelope));
      EXPECT_EQ(of_whole.payload_bytes, envelope.payload_bytes);
    }
    v1::ExecuteRequest parsed;
    const bool ok = parsed.ParseFromString(message);
    refused += status.ok() ? 0 : 1;
    const auto head = HeadBytes(Cut(message, random), kField);
    EXPECT_EQ(head.ok(), status.ok());
    EXPECT_EQ(head.value_or(0), status.ok() ? envelope.head.size() : 0);
    if (!ok) continue;
    // Protobuf accepts groups as unknown fields; no message of ours has one.
    if (!status.ok()) {
      EXPECT_NE(std::string(status.message()).find("malformed"), std::string::npos);
      continue;
    }
    EXPECT_EQ(Payload(envelope), parsed.data()) << testing::PrintToString(message);
    EXPECT_TRUE(parsed.ParseFromString(envelope.head));
  }
  EXPECT_GT(refused, 1000);
}

TEST(EnvelopeTest, Malformed) {
  const std::string_view cases[] = {
      "\x08",                                          // a varint that ends early
      "\x7a\x05\x61",                                  // fewer bytes than its length
      "\x7a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  // a length of 2^64 - 1
      "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",  // above 64 bits
      "\x0b",                                          // a group
      "\x09\x31\x32",                                  // a cut fixed64
  };
  for (const std::string_view bytes : cases) {
    const ByteSpan piece = AsPiece(bytes);
    Envelope envelope;
    EXPECT_TRUE(absl::IsInvalidArgument(SplitEnvelope(std::span(&piece, 1), kField, &envelope)))
        << testing::PrintToString(std::string(bytes));
  }
  Envelope envelope;
  EXPECT_TRUE(SplitEnvelope({}, kField, &envelope).ok());
}

TEST(EnvelopeTest, CountsFields) {
  EXPECT_EQ(*CountFields(std::string_view("\x12\x00\x12\x01\x61\x08\x05", 7), 2), 2);
  EXPECT_FALSE(CountFields("\x12\x09", 2).ok());
}

// A message is taken apart as protobuf has it, and put together as well.
TEST(EnvelopeTest, TakesFields) {
  v1::ExecuteResponse response;
  response.set_op_id(7);
  for (const std::string_view text : {"", "first", "second"}) {
    *response.add_gathered() = std::string(text);
  }
  response.mutable_status()->set_code(3);
  const std::string message = response.SerializeAsString();
  constexpr int kGathered = v1::ExecuteResponse::kGatheredFieldNumber;
  std::vector<std::string_view> taken;
  std::string rest;
  ASSERT_TRUE(TakeFields(message, kGathered, 3, &taken, &rest).ok());
  EXPECT_EQ(taken, (std::vector<std::string_view>{"", "first", "second"}));
  response.clear_gathered();
  v1::ExecuteResponse without;
  ASSERT_TRUE(without.ParseFromString(rest));
  EXPECT_EQ(without.SerializeAsString(), response.SerializeAsString());
  taken.clear();
  EXPECT_TRUE(absl::IsResourceExhausted(TakeFields(message, kGathered, 2, &taken, &rest)));
  // Cut off anywhere, it is refused, or is the message of fewer fields that it begins with.
  for (size_t n = 0; n < message.size(); ++n) {
    taken.clear();
    rest.clear();
    v1::ExecuteResponse begun;
    const bool ok =
        TakeFields(std::string_view(message).substr(0, n), kGathered, 3, &taken, &rest).ok();
    EXPECT_EQ(ok, begun.ParseFromString(message.substr(0, n))) << n;
    if (ok) EXPECT_EQ(taken.size(), static_cast<size_t>(begun.gathered_size())) << n;
  }
}

TEST(EnvelopeTest, AppendsFields) {
  v1::ExecuteRequest expected;
  expected.set_op_id(300);
  expected.set_acknowledged(uint64_t{1} << 63);
  *expected.add_gathered() = "some";
  std::string message;
  AppendInteger(v1::ExecuteRequest::kOpIdFieldNumber, 300, &message);
  AppendBytesHead(v1::ExecuteRequest::kGatheredFieldNumber, 4, &message);
  message += "some";
  AppendInteger(v1::ExecuteRequest::kAcknowledgedFieldNumber, uint64_t{1} << 63, &message);
  v1::ExecuteRequest request;
  ASSERT_TRUE(request.ParseFromString(message));
  EXPECT_EQ(request.SerializeAsString(), expected.SerializeAsString());
}

}  // namespace
}  // namespace telegrad
