#include "engine/frontend/json.h"

#include <gtest/gtest.h>

namespace telegrad {
namespace {

TEST(JsonTest, StringsAndUtf8) {
  std::string s;
  EXPECT_TRUE(JsonReader(R"("a\n\u00e9\ud83d\ude00")").String(&s));
  EXPECT_EQ(s, "a\n\xc3\xa9\xf0\x9f\x98\x80");
  for (std::string_view bad :
       {"\"", "\"\\u12\"", "\"\\ud83d\"", "\"\\ude00\"", "\"\\x\"", "\"\n\"", "\"\xff\"",
        "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\\u-001\"", "x"}) {
    EXPECT_FALSE(JsonReader(bad).String(&s)) << bad;
  }
  int64_t n = 0;
  EXPECT_TRUE(JsonReader("9223372036854775807").Size(&n));
  EXPECT_EQ(n, INT64_MAX);
  for (std::string_view bad : {"9223372036854775808", "-1", "01", "1.5", "1e3", "", "+1"}) {
    EXPECT_FALSE(JsonReader(bad).Size(&n)) << bad;
  }
  JsonReader quoted(JsonQuote("\x01\"\\\xc3\xa9"));
  EXPECT_EQ(JsonQuote("\x01\"\\\xc3\xa9"), "\"\\u0001\\\"\\\\\xc3\xa9\"");
}

}  // namespace
}  // namespace telegrad
