// CRC-32C: published values, and that all implementations agree at every length and alignment.
#include "engine/base/crc32c.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace telegrad {
namespace {

// RFC 3720, B.4, and the check value of the catalogue of CRC algorithms.
TEST(Crc32cTest, PublishedValues) {
  const auto of = [](const std::string& s) { return Crc32c(s.data(), s.size()); };
  EXPECT_EQ(of("123456789"), 0xE3069283);
  EXPECT_EQ(of(std::string(32, '\0')), 0x8A9136AA);
  EXPECT_EQ(of(std::string(32, '\xff')), 0x62A8AB43);
  std::string up, down;
  for (int i = 0; i < 32; ++i) up += static_cast<char>(i);
  for (int i = 31; i >= 0; --i) down += static_cast<char>(i);
  EXPECT_EQ(of(up), 0x46DD794E);
  EXPECT_EQ(of(down), 0x113FDB5C);
  EXPECT_EQ(of(""), 0u);
}

// One bit at a time, straight from the definition.
uint32_t Slowly(const std::string& s) {
  uint32_t crc = 0xffffffff;
  for (const char c : s) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78 : 0);
  }
  return ~crc;
}

TEST(Crc32cTest, EveryWayAgreesAtEveryLengthAndAlignment) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::string bytes(70'000, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  std::vector<size_t> sizes;
  for (size_t n = 0; n < 300; ++n) sizes.push_back(n);
  for (const size_t n : {511, 512, 513, 1023, 1024, 4096, 32768, 33000, 65536, 69000}) {
    sizes.push_back(n);
  }
  for (const Crc32cWay* way = Crc32cWays(); way->name != nullptr; ++way) {
    SCOPED_TRACE(way->name);
    for (const size_t n : sizes) {
      const size_t from = random() % 100, to = random() % 100;
      const std::string part = bytes.substr(from, n);
      const uint32_t expected = Slowly(part);
      ASSERT_EQ(way->extend(0, bytes.data() + from, n), expected) << n;
      const size_t cut = n == 0 ? 0 : random() % n;
      ASSERT_EQ(way->extend(way->extend(0, part.data(), cut), part.data() + cut, n - cut), expected)
          << n << " cut at " << cut;
      std::string copy(to + n + 64, 'x');
      ASSERT_EQ(way->copy(0, copy.data() + to, bytes.data() + from, n), expected) << n;
      ASSERT_EQ(copy, std::string(to, 'x') + part + std::string(64, 'x')) << n;
      ASSERT_EQ(way->copy(way->copy(0, copy.data() + to, part.data(), cut), copy.data() + to + cut,
                          part.data() + cut, n - cut),
                expected);
      ASSERT_EQ(copy, std::string(to, 'x') + part + std::string(64, 'x')) << n;
    }
  }
}

}  // namespace
}  // namespace telegrad
