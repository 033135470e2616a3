// Quoting and reading of JSON: strings with UTF-8 and escapes, numbers, and the skipping of
// values.
#include "engine/base/json.h"

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

TEST(JsonTest, NumbersAndTruth) {
  for (const auto& [text, want] : {std::pair<std::string_view, double>{"0", 0},
                                   {"-0.5", -0.5},
                                   {" 1700000000", 1700000000},
                                   {"1.7e9", 1.7e9},
                                   {"2E-2", 0.02}}) {
    double n = -1;
    JsonReader reader(text);
    EXPECT_TRUE(reader.Number(&n) && reader.AtEnd()) << text;
    EXPECT_EQ(n, want);
  }
  for (std::string_view bad :
       {"", "-", "+1", ".5", "1.", "1e", "1e+", "inf", "nan", "1e999", "01"}) {
    double n;
    JsonReader reader(bad);
    EXPECT_FALSE(reader.Number(&n) && reader.AtEnd()) << bad;
  }
  std::string_view text;
  JsonReader digits(" 18446744073709551615,");
  EXPECT_TRUE(digits.NumberText(&text) && digits.Eat(','));
  EXPECT_EQ(text, "18446744073709551615");
  EXPECT_FALSE(JsonReader("1e").NumberText(&text));
  bool truth = false;
  EXPECT_TRUE(JsonReader(" true").Bool(&truth) && truth);
  EXPECT_TRUE(JsonReader("false").Bool(&truth) && !truth);
  EXPECT_FALSE(JsonReader("True").Bool(&truth));
}

TEST(JsonTest, SkipsWholeValuesOnly) {
  for (std::string_view good :
       {"1", "null", "\"]\"", "[]", "{}", "[[],{}]", R"({"a":[1,{"b":[true]}],"c":"}"})",
        "[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]"}) {
    JsonReader reader(good);
    EXPECT_TRUE(reader.SkipValue() && reader.AtEnd()) << good;
  }
  for (std::string_view bad :
       {"", "[", "{", "[}", "[1,]", "[,1]", "{1:2}", R"({"a"})", R"({"a":})", R"({"a":1,})", "nul",
        "[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]", "[1 2]"}) {
    EXPECT_FALSE(JsonReader(bad).SkipValue()) << bad;
  }
  JsonReader rest("[1], 2");
  EXPECT_TRUE(rest.SkipValue());
  EXPECT_TRUE(rest.Eat(','));
}

}  // namespace
}  // namespace telegrad
