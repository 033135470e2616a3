// Compression of payloads: content is restored, incompressible content is sent as it is, and
// damaged data or wrong lengths are refused.
#include "engine/wire/compression.h"

#include <zstd.h>

#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace telegrad {
namespace {

std::span<const std::byte> Bytes(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

// `s` in pieces of random length.
std::vector<ByteSpan> Cut(const std::string& s, std::mt19937& random) {
  std::vector<ByteSpan> pieces;
  for (size_t at = 0; at < s.size();) {
    const size_t n = std::min<size_t>(s.size() - at, 1 + random() % 1000);
    pieces.emplace_back(reinterpret_cast<const uint8_t*>(s.data()) + at, n);
    at += n;
  }
  return pieces;
}

class CompressionTest : public ::testing::TestWithParam<CompressionMethod> {
 protected:
  absl::Status Unpack(const std::string& packed, size_t bytes) {
    out_.assign(bytes + kGuard, 'g');
    const absl::Status status = Decompress(GetParam(), Cut(packed, random_),
                                           std::as_writable_bytes(std::span(out_)).first(bytes));
    EXPECT_EQ(out_.substr(bytes), std::string(kGuard, 'g')) << "written past the end";
    out_.resize(bytes);
    return status;
  }
  static constexpr size_t kGuard = 4096;
  std::mt19937 random_{7};
  std::string out_;
};

TEST_P(CompressionTest, ThereAndBack) {
  std::string text;
  while (text.size() < 300'000) text += "weights " + std::to_string(random_() % 50);
  std::string packed;
  ASSERT_TRUE(Compress(GetParam(), Bytes(text), &packed));
  EXPECT_LT(packed.size(), text.size());
  ASSERT_TRUE(Unpack(packed, text.size()).ok());
  EXPECT_EQ(out_, text);
}

TEST_P(CompressionTest, NoiseIsLeftAlone) {
  std::string noise(100'000, '\0');
  for (char& c : noise) c = static_cast<char>(random_());
  std::string packed;
  EXPECT_FALSE(Compress(GetParam(), Bytes(noise), &packed));
  EXPECT_FALSE(Compress(GetParam(), {}, &packed));
}

// A bomb says less, or nothing, of what it becomes.
TEST_P(CompressionTest, AnotherLengthThanSaidIsRefused) {
  const std::string zeros(1 << 20, '\0');
  std::string packed;
  ASSERT_TRUE(Compress(GetParam(), Bytes(zeros), &packed));
  EXPECT_EQ(Unpack(packed, zeros.size() - 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Unpack(packed, zeros.size() + 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Unpack(packed, packed.size()).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Unpack(packed, 1).code(), absl::StatusCode::kInvalidArgument) << "longer than its data";
  EXPECT_EQ(Unpack(packed + packed, 2 * zeros.size()).code(), absl::StatusCode::kInvalidArgument)
      << "two of them";
}

TEST_P(CompressionTest, DamageIsRefusedOrChangesBytesOnly) {
  std::string text;
  while (text.size() < 20'000) text += "weights " + std::to_string(random_() % 50);
  std::string packed;
  ASSERT_TRUE(Compress(GetParam(), Bytes(text), &packed));
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = packed;
    damaged[random_() % damaged.size()] = static_cast<char>(random_());
    if (i % 3 == 0) damaged.resize(random_() % damaged.size());
    const absl::Status status = Unpack(damaged, text.size());
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CompressionTest,
                         ::testing::ValuesIn(CompressionMethods().begin(),
                                             CompressionMethods().end()),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(CompressionZstdTest, AFrameThatDoesNotSayItsLengthIsRefused) {
  const std::string zeros(1 << 16, '\0');
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  std::string packed(ZSTD_compressBound(zeros.size()), '\0');
  packed.resize(ZSTD_compress2(context, packed.data(), packed.size(), zeros.data(), zeros.size()));
  ZSTD_freeCCtx(context);
  std::string out(zeros.size(), 'x');
  const ByteSpan piece(reinterpret_cast<const uint8_t*>(packed.data()), packed.size());
  EXPECT_EQ(Decompress(*FindCompression(v1::COMPRESSION_ZSTD), std::span(&piece, 1),
                       std::as_writable_bytes(std::span(out)))
                .code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace telegrad
