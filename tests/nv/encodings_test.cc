// Bits of the encodings against values worked out by hand from NVIDIA's headers.
#include <gtest/gtest.h>

#include "devices/nv/pushbuffer.h"
#include "devices/nv/qmd.h"
#include "devices/nv/rm_client.h"

namespace telegrad::nv {
namespace {

TEST(PushBuffer, Header) {
  PushBuffer push;
  push.Push(kSubCompute, 0x2B4, {0x12345678});
  push.Push(kSubCopy, 0x400, {1, 2, 3, 4});
  const std::vector<uint32_t> expected = {0x200120AD, 0x12345678, 0x20048100, 1, 2, 3, 4};
  EXPECT_EQ(push.words(), expected);
}

TEST(PushBuffer, SemaphoreRelease) {
  PushBuffer push;
  push.Release(0x1122334450, 0x99AABBCCDD);
  const std::vector<uint32_t> expected = {0x20050017, 0x22334450, 0x11,
                                          0xAABBCCDD, 0x99,       0x03100001};
  EXPECT_EQ(push.words(), expected);
}

TEST(PushBuffer, RingEntry) {
  // GET in bits 31:2 and 39:32, LEVEL in 41, LENGTH from 42.
  EXPECT_EQ(RingEntry(0x1000020000, 7), 0x00001E1000020000u);
  EXPECT_EQ(RingEntry(kPushAddressLimit - 4, 1) & (kPushAddressLimit - 1), kPushAddressLimit - 4);
}

TEST(Qmd, EachFieldTakesItsBitsAndNoOther) {
  for (size_t i = 0; i < std::size(kQmdBits); ++i) {
    Qmd qmd;
    const auto before = qmd.words();
    qmd.Set(static_cast<QmdField>(i), ~0u);
    const QmdBits& bits = kQmdBits[i];
    for (int bit = 0; bit < static_cast<int>(Qmd::kBytes) * 8; ++bit) {
      const bool was = before[bit / 32] >> (bit % 32) & 1;
      const bool is = qmd.words()[bit / 32] >> (bit % 32) & 1;
      const bool inside = bits.low <= bit && bit <= bits.high;
      ASSERT_EQ(is, inside || was) << bits.name << " bit " << bit;
    }
    qmd.Set(static_cast<QmdField>(i), 0);
    for (int bit = bits.low; bit <= bits.high; ++bit) {
      ASSERT_FALSE(qmd.words()[bit / 32] >> (bit % 32) & 1) << bits.name;
    }
  }
}

TEST(Qmd, FieldsDoNotOverlap) {
  for (size_t i = 0; i < std::size(kQmdBits); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_TRUE(kQmdBits[i].low > kQmdBits[j].high || kQmdBits[j].low > kQmdBits[i].high)
          << kQmdBits[i].name << " and " << kQmdBits[j].name;
    }
  }
}

TEST(Qmd, IsOfVersion4) { EXPECT_EQ(Qmd().words()[18], 0x40u); }

TEST(RmStatus, Names) {
  EXPECT_EQ(DescribeRmStatus(0x51), "NV_ERR_NO_MEMORY (0x51): out of memory");
  EXPECT_EQ(DescribeRmStatus(0x12345), "RM status 0x12345, which is not in this program's table");
}

TEST(RmRequest, IsWhatTheKernelExpects) {
  EXPECT_EQ(RmRequest(kEscAlloc, 32), 0xC020462Bu);
  EXPECT_EQ(RmRequest(kEscMapMemoryDma, sizeof(MapDmaParams)), 0xC0404657u);
}

}  // namespace
}  // namespace telegrad::nv
