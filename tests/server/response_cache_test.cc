// Answers that are kept: whose go when there is no room.
#include "server/serving/response_cache.h"

#include "engine/base/status.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

constexpr int64_t kBytes = 8000;  // of an answer, which takes a little more

InferResult Answer() {
  static const std::string content(kBytes, 'a');
  InferResult result{.model = "m", .version = "1", .outputs = {}};
  result.outputs.push_back({.name = "y",
                            .datatype = "UINT8",
                            .shape = {kBytes},
                            .data = content.data(),
                            .bytes = kBytes});
  return result;
}

TEST(ResponseCache, TheLeastRecentlyUsedGoes) {
  ResponseCache cache(10 * kBytes);
  const auto key = [](int i) { return Sha256(StrCat(i)); };
  for (int i = 0; i < 8; ++i) cache.Put("alice", key(i), Answer());
  EXPECT_NE(cache.Find(key(0)), nullptr);
  cache.Put("alice", key(8), Answer());
  EXPECT_NE(cache.Find(key(0)), nullptr);
  EXPECT_EQ(cache.Find(key(1)), nullptr);
  EXPECT_LE(cache.bytes(), 10 * kBytes);
}

// Whoever asks ever other questions takes no answers from others.
TEST(ResponseCache, WhoHasTheMostGivesWay) {
  ResponseCache cache(10 * kBytes);
  const auto key = [](const char* tenant, int i) { return Sha256(StrCat(tenant, i)); };
  for (int i = 0; i < 2; ++i) cache.Put("bob", key("bob", i), Answer());
  for (int i = 0; i < 100; ++i) cache.Put("alice", key("alice", i), Answer());
  EXPECT_NE(cache.Find(key("bob", 0)), nullptr);
  EXPECT_NE(cache.Find(key("bob", 1)), nullptr);
  EXPECT_NE(cache.Find(key("alice", 99)), nullptr);
  EXPECT_EQ(cache.Find(key("alice", 0)), nullptr);
}

}  // namespace
}  // namespace telegrad
