// Both evaluators of elementwise ops against what NumPy and ml_dtypes computed: tests/data/dtypes,
// whose make.py says what its sections hold.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "engine/base/strings.h"
#include "tests/conformance/evaluators.h"

namespace telegrad::testing {
namespace {

// The elements of each section, zero-extended.
std::map<std::string, std::vector<uint64_t>> ReadSections() {
  std::ifstream file("tests/data/dtypes/dtypes.bin", std::ios::binary);
  const std::string data((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::map<std::string, std::vector<uint64_t>> sections;
  size_t at = 0;
  const auto number = [&](size_t bytes) {
    uint64_t value = 0;
    std::memcpy(&value, data.data() + at, bytes);
    at += bytes;
    return value;
  };
  while (at < data.size()) {
    const size_t length = number(4);
    const std::string name = data.substr(at, length);
    at += length;
    const size_t size = number(4), count = number(4);
    std::vector<uint64_t>& elements = sections[name];
    for (size_t i = 0; i < count; ++i) elements.push_back(number(size));
  }
  return sections;
}

class DTypes : public ::testing::Test {
 protected:
  static const std::vector<uint64_t>& Section(const std::string& name) {
    static const auto* sections = new std::map(ReadSections());
    const auto it = sections->find(name);
    EXPECT_NE(it, sections->end()) << "there is no section '" << name << "'";
    static const std::vector<uint64_t> kNone;
    return it == sections->end() ? kNone : it->second;
  }
  static bool Has(const std::string& name) {
    static const auto* sections = new std::map(ReadSections());
    return sections->count(name) != 0;
  }
};

// FNV-1a over the elements' bytes.
uint64_t Digest(std::span<const Lane> row, size_t bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (Lane x : row) {
    for (size_t i = 0; i < bytes; ++i) hash = (hash ^ (x >> (8 * i) & 0xff)) * 0x100000001b3;
  }
  return hash;
}

// `at(i)` for i in rows of 256 has the digests of the section.
template <typename F>
void ExpectRows(const std::vector<uint64_t>& digests, size_t bytes, const F& at) {
  ASSERT_FALSE(digests.empty());
  std::vector<Lane> row(256);
  for (size_t r = 0; r < digests.size(); ++r) {
    for (size_t i = 0; i < 256; ++i) row[i] = at(256 * r + i);
    ASSERT_EQ(Digest(row, bytes), digests[r]) << "in row " << r;
  }
}

TEST_F(DTypes, EveryCodeMeansWhatItMeansThere) {
  for (const DTypeInfo& type : AllDTypes().subspan(1)) {
    const std::string name = StrCat("decode ", type.text);
    if (type.bits > 16 || (type.bits >= 8 && !IsFloat(type.dtype))) continue;
    for (Evaluator evaluator : kBoth) {
      SCOPED_TRACE(StrCat(name, " by ", evaluator == kLanes ? "lanes" : "folding"));
      const auto decode = [&](size_t code) {
        return Apply(evaluator, Op::kCast, type.dtype, DType::kFloat32, code);
      };
      if (type.bits == 16) {
        ExpectRows(Section(StrCat(name, " rows")), 4, decode);
        continue;
      }
      const std::vector<uint64_t>& values = Section(name);
      ASSERT_EQ(values.size(), size_t{1} << type.bits);
      for (size_t code = 0; code < values.size(); ++code) {
        ASSERT_EQ(decode(code), values[code]) << "code " << code;
      }
    }
  }
}

TEST_F(DTypes, CastsAreTheirs) {
  int casts = 0;
  for (const DTypeInfo& from : AllDTypes().subspan(1)) {
    for (const DTypeInfo& to : AllDTypes().subspan(1)) {
      const std::string name = StrCat("cast ", from.text, " ", to.text);
      if (!Has(StrCat(name, " to"))) continue;
      ++casts;
      const std::vector<uint64_t>& want = Section(StrCat(name, " to"));
      const std::vector<uint64_t>& x = Section(
          IsFloat(from.dtype) ? StrCat(name, " from") : StrCat("cast ", from.text, " from"));
      ASSERT_EQ(x.size(), want.size());
      for (size_t i = 0; i < x.size(); ++i) {
        for (Evaluator evaluator : kBoth) {
          ASSERT_EQ(Apply(evaluator, Op::kCast, from.dtype, to.dtype, x[i]),
                    OneNan(to.dtype, want[i]))
              << name << " of " << std::hex << x[i]
              << (evaluator == kLanes ? " by lanes" : " by folding");
        }
      }
    }
  }
  EXPECT_EQ(casts, 2 * 8 + 2 * (8 + 8 + 4 + 2) + 2 * 8);
}

TEST_F(DTypes, NarrowFloatArithmeticIsTheirs) {
  for (DType type : kNarrowFloats) {
    for (Op op : {Op::kSqrt, Op::kFloor, Op::kTrunc, Op::kNeg, Op::kRecip, Op::kAdd, Op::kSub,
                  Op::kMul, Op::kFDiv, Op::kMax, Op::kCmpLt, Op::kCmpEq}) {
      const std::string name = StrCat(Name(op), " ", Name(type));
      const bool compares = Info(op).type_rule == TypeRule::kCompare;
      const DType out = compares ? DType::kBool : type;
      const auto bytes = static_cast<size_t>(ByteSize(out));
      for (Evaluator evaluator : kBoth) {
        SCOPED_TRACE(StrCat(name, " by ", evaluator == kLanes ? "lanes" : "folding"));
        if (Info(op).min_src == 1) {
          ExpectRows(Section(StrCat(name, " rows")), bytes,
                     [&](size_t i) { return Apply(evaluator, op, type, out, i); });
        } else if (ByteSize(type) == 1) {
          ExpectRows(Section(StrCat(name, " rows")), bytes,
                     [&](size_t i) { return Apply(evaluator, op, type, out, i / 256, i % 256); });
        } else {
          const std::vector<uint64_t>&pairs = Section(StrCat("pairs ", Name(type))),
                &want = Section(name);
          ASSERT_EQ(pairs.size(), 2 * want.size());
          for (size_t i = 0; i < want.size(); ++i) {
            ASSERT_EQ(Apply(evaluator, op, type, out, pairs[2 * i], pairs[2 * i + 1]), want[i])
                << std::hex << pairs[2 * i] << ", " << pairs[2 * i + 1];
          }
        }
      }
    }
  }
}

TEST_F(DTypes, IntegerArithmeticIsTheirs) {
  for (DType type : kInts) {
    const std::vector<uint64_t>& edges = Section(StrCat("edges ", Name(type)));
    for (const OpInfo& info : AllOps()) {
      const std::string name = StrCat(info.name, " ", Name(type));
      if (!Is(info.op, kAlu) || !Has(name)) continue;
      const std::vector<uint64_t>& want = Section(name);
      const bool partial = Has(name + " defined");
      const DType out = info.type_rule == TypeRule::kCompare ? DType::kBool : type;
      ASSERT_EQ(want.size(), info.min_src == 1 ? edges.size() : edges.size() * edges.size());
      for (size_t i = 0; i < want.size(); ++i) {
        if (partial && Section(name + " defined")[i] == 0) continue;
        const Lane x = info.min_src == 1 ? edges[i] : edges[i / edges.size()];
        const Lane y = edges[i % edges.size()];
        for (Evaluator evaluator : kBoth) {
          ASSERT_EQ(Apply(evaluator, info.op, type, out, x, y), want[i])
              << name << " of " << std::hex << x << ", " << y
              << (evaluator == kLanes ? " by lanes" : " by folding");
        }
      }
    }
  }
}

}  // namespace
}  // namespace telegrad::testing
