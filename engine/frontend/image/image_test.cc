// Every format against Pillow's pixels (tests/tools/image_cases.py wrote both), what Pillow does
// not write by hand, and files that are damaged, cut off or larger than the limits.
#include "engine/frontend/image/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <random>

#include "engine/base/byte_codec.h"
#include "engine/base/files.h"
#include "engine/base/strings.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The corpus of image_fuzz, and beside it what each file has.
constexpr char kEncodedImages[] = "tests/fuzz/corpus/image";
constexpr char kDecodedImages[] = "tests/data/images";

absl::StatusOr<Image> Decode(std::string_view bytes, PixelFormat format = PixelFormat::kRgb) {
  Budget budget;
  auto out = DecodeImage(bytes, format, &budget);
  EXPECT_EQ(budget.bytes_held(), 0);
  return out;
}

std::vector<int> PixelsOfImage(const absl::StatusOr<Image>& image) {
  EXPECT_TRUE(image.ok()) << image.status();
  std::vector<int> out;
  if (image.ok()) {
    for (const char c : image->pixels) out.push_back(static_cast<uint8_t>(c));
  }
  return out;
}

std::vector<std::string> EncodedImages() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(kEncodedImages)) {
    out.push_back(entry.path().filename());
  }
  std::ranges::sort(out);
  return out;
}

std::string Encoded(const std::string& name) {
  const auto bytes = ReadFile(StrCat(kEncodedImages, "/", name));
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.value_or("");
}

TEST(Images, EveryFileHasThePixelsThatPillowSees) {
  int compared = 0;
  for (const std::string& name : EncodedImages()) {
    const auto want = ReadFile(StrCat(kDecodedImages, "/", name, ".ppm"));
    ASSERT_TRUE(want.ok()) << want.status();
    const auto expected = Decode(*want);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const auto got = Decode(Encoded(name));
    if (absl::IsUnimplemented(got.status())) {
      EXPECT_THAT(std::string(got.status().message()), HasSubstr("built without")) << name;
      continue;
    }
    ASSERT_TRUE(got.ok()) << name << ": " << got.status();
    EXPECT_EQ(got->width, expected->width) << name;
    EXPECT_EQ(got->height, expected->height) << name;
    EXPECT_EQ(got->channels, 3) << name;
    EXPECT_TRUE(got->pixels == expected->pixels) << name;
    ++compared;
  }
  EXPECT_GE(compared, 15);
}

TEST(Images, ABmpInRunLengthsOfEitherWidth) {
  // Two rows of four: 1 1 2 0 below (a run, a byte pair as it is, the rest left out), 2 2 2 2
  // above.
  const auto bmp = [](int bits, uint32_t compression, std::initializer_list<int> data) {
    ByteWriter w;
    w.Word<uint16_t>(0x4d42);
    w.Word<uint64_t>(0);
    w.Word<uint32_t>(14 + 40 + 12);
    w.Word<uint32_t>(40);
    w.Word<int32_t>(4);
    w.Word<int32_t>(2);
    w.Word<uint16_t>(1);
    w.Word<uint16_t>(static_cast<uint16_t>(bits));
    w.Word<uint32_t>(compression);
    for (int i = 0; i < 3; ++i) w.Word<uint32_t>(0);
    w.Word<uint32_t>(3);
    w.Word<uint32_t>(0);
    for (const uint32_t color : {0x0a0a0aU, 0x141414U, 0x1e1e1eU}) w.Word<uint32_t>(color);
    for (const int byte : data) w.Word<uint8_t>(static_cast<uint8_t>(byte));
    return w.Take();
  };
  const auto rows = ElementsAre(30, 30, 30, 30, 20, 20, 30, 10);
  EXPECT_THAT(PixelsOfImage(Decode(bmp(8, 1, {2, 1, 0, 3, 2, 0, 0, 0, 0, 0, 4, 2, 0, 1}),
                                   PixelFormat::kGrayscale)),
              rows);
  EXPECT_THAT(PixelsOfImage(Decode(bmp(4, 2, {2, 0x11, 1, 0x20, 0, 0, 4, 0x22, 0, 1}),
                                   PixelFormat::kGrayscale)),
              rows);
  // Moved to the second row's third pixel.
  EXPECT_THAT(PixelsOfImage(Decode(bmp(8, 1, {0, 2, 2, 1, 2, 1, 0, 1}), PixelFormat::kGrayscale)),
              ElementsAre(10, 10, 20, 20, 10, 10, 10, 10));
}

TEST(Images, PixmapsInTextAndOfSixteenBits) {
  EXPECT_THAT(PixelsOfImage(Decode("P1 # a bitmap\n3 1\n010")),
              ElementsAre(255, 255, 255, 0, 0, 0, 255, 255, 255));
  EXPECT_THAT(PixelsOfImage(Decode("P2\n2 1\n15 0 15", PixelFormat::kGrayscale)),
              ElementsAre(0, 255));
  EXPECT_THAT(PixelsOfImage(Decode("P3\n1 1 255\n1 2 3", PixelFormat::kBgr)), ElementsAre(3, 2, 1));
  EXPECT_THAT(PixelsOfImage(Decode(std::string("P5 2 1 65535\n\x80\x00\xff\xff", 17),
                                   PixelFormat::kGrayscale)),
              ElementsAre(128, 255));
  EXPECT_THAT(PixelsOfImage(Decode("P7\nWIDTH 1\nHEIGHT 1\nDEPTH 4\nMAXVAL 255\nTUPLTYPE "
                                   "RGB_ALPHA\nENDHDR\nabcd")),
              ElementsAre('a', 'b', 'c'));
  EXPECT_FALSE(Decode("P3\n1 1 255\n1 2").ok());
  EXPECT_FALSE(Decode("P3\n1 1 0\n1 2 3").ok());
  EXPECT_FALSE(Decode("P7\nWIDTH 1\nENDHDR\n").ok());
}

// A big-endian file of four tiles of 16 x 16, each of its own gray, over a picture of 20 x 18.
std::string TiledTiff() {
  std::string out("MM\0*\0\0\0\x08", 8);
  const auto put = [&](uint32_t value, int bytes) {
    for (int i = bytes; i-- > 0;) out.push_back(static_cast<char>(value >> (8 * i)));
  };
  struct Row {
    uint32_t tag, count, value;
  };
  const Row rows[] = {{256, 1, 20}, {257, 1, 18}, {258, 1, 8},  {259, 1, 1},   {262, 1, 1},
                      {277, 1, 1},  {322, 1, 16}, {323, 1, 16}, {324, 4, 200}, {325, 4, 216}};
  put(std::size(rows), 2);
  for (const Row& row : rows) {
    put(row.tag, 2), put(4, 2), put(row.count, 4), put(row.value, 4);
  }
  out.resize(200);
  for (uint32_t i = 0; i < 4; ++i) put(232 + 256 * i, 4);
  for (int i = 0; i < 4; ++i) put(256, 4);
  for (int i = 0; i < 4; ++i) out.append(256, static_cast<char>(50 * i + 10));
  return out;
}

TEST(Images, ATiffInTilesOfTheOtherByteOrder) {
  const auto image = Decode(TiledTiff(), PixelFormat::kGrayscale);
  const std::vector<int> pixels = PixelsOfImage(image);
  ASSERT_EQ(pixels.size(), 20U * 18U);
  for (int y = 0; y < 18; ++y) {
    for (int x = 0; x < 20; ++x) {
      ASSERT_EQ(pixels[20 * y + x], 50 * (2 * (y / 16) + x / 16) + 10) << x << ", " << y;
    }
  }
}

TEST(Images, GrayIsTheLumaAndAGrayFileHasThreeEqualChannels) {
  EXPECT_THAT(PixelsOfImage(Decode("P3 3 1 255 255 0 0 0 255 0 0 0 255", PixelFormat::kGrayscale)),
              ElementsAre(76, 150, 29));
  EXPECT_THAT(PixelsOfImage(Decode("P2 1 1 255 7")), ElementsAre(7, 7, 7));
}

TEST(Images, WhatIsNoImageIsTold) {
  const auto got = Decode("GIF89a");
  EXPECT_TRUE(absl::IsInvalidArgument(got.status()));
  EXPECT_THAT(std::string(got.status().message()), HasSubstr("PNM, BMP"));
  EXPECT_FALSE(Decode("").ok());
}

TEST(Images, SizesAreRefusedBeforeAnythingIsDecoded) {
  EXPECT_TRUE(absl::IsResourceExhausted(Decode("P6 1048576 1048576 255\n").status()));
  Budget::Limits limits;
  limits.bytes = 1 << 20;
  Budget budget(limits);
  EXPECT_TRUE(absl::IsResourceExhausted(
      DecodeImage("P6 300 300 255\n", PixelFormat::kRgb, &budget).status()));
  EXPECT_EQ(budget.bytes_held(), 0);
}

TEST(Images, FilesCutAtEveryByteAreNoImagesOrThePartOfOne) {
  for (const std::string& name : EncodedImages()) {
    const std::string bytes = Encoded(name);
    for (size_t n = 0; n < bytes.size(); ++n) {
      const auto got = Decode(std::string_view(bytes).substr(0, n));
      if (got.ok()) {
        EXPECT_EQ(got->pixels.size(), static_cast<size_t>(got->width * got->height * 3)) << name;
      }
    }
  }
}

TEST(Images, DamagedFilesGiveAnImageOrAnError) {
  const char* const given = std::getenv("TELEGRAD_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : 17;
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  for (const std::string& name : EncodedImages()) {
    const std::string bytes = Encoded(name);
    for (int i = 0; i < 100; ++i) {
      std::string mutant = bytes;
      for (uint64_t k = 1 + random() % 4; k > 0; --k) {
        mutant[random() % mutant.size()] = static_cast<char>(random());
      }
      Budget::Limits limits;
      limits.bytes = 64 << 20;
      Budget budget(limits);
      const auto got = DecodeImage(mutant, PixelFormat::kGrayscale, &budget);
      if (got.ok()) {
        EXPECT_EQ(got->pixels.size(), static_cast<size_t>(got->width * got->height)) << name;
      }
      EXPECT_EQ(budget.bytes_held(), 0);
    }
  }
}

}  // namespace
}  // namespace telegrad
