// Integer instructions on edge values and random ones, against 128-bit arithmetic written here.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tests/fakes/cuda/ptx/run_ptx.h"

namespace fakecuda {
namespace {

using Int = __int128;

std::vector<uint64_t> Edges(int bits) {
  const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  const uint64_t top = uint64_t{1} << (bits - 1);
  std::vector<uint64_t> values = {0,   1,       2,       3,       7,        mask,    mask - 1,
                                  top, top - 1, top + 1, top | 5, 0x5555,   31,      32,
                                  33,  63,      64,      255,     0xabcdef, mask / 3};
  for (uint64_t& v : values) v &= mask;
  return values;
}

struct Row {
  std::string instruction;
  std::string types;
  int bits;
  bool is_signed;
  std::function<Int(Int a, Int b, Int c)> expected;  // operands as the type reads them
};

Int Read(uint64_t x, int bits, bool is_signed) {
  const Int value = bits == 64 ? Int{x} : Int{x & ((uint64_t{1} << bits) - 1)};
  return is_signed && (value >> (bits - 1) & 1) != 0 ? value - (Int{1} << bits) : value;
}

int WidthOf(char type) { return type == 'p' ? 1 : type == 'h' ? 16 : type == 'w' ? 32 : 64; }

// All combinations of edge values for two operands, random ones for the third.
void Check(const Row& row) {
  SCOPED_TRACE(row.instruction);
  std::mt19937_64 random(7);
  const size_t operands = row.types.size() - 1;
  const std::vector<uint64_t> edges = Edges(row.bits);
  std::vector<std::vector<uint64_t>> values(operands);
  for (const uint64_t a : edges) {
    for (const uint64_t b : edges) {
      values[0].push_back(a);
      if (operands > 1) values[1].push_back(b);
      if (operands > 2) {
        const auto third =
            row.types[3] == 'p' ? std::vector<uint64_t>{0, 1} : Edges(WidthOf(row.types[3]));
        const bool edge = row.types[3] == 'p' || random() % 2 == 0;
        values[2].push_back(edge ? third[random() % third.size()] : random());
      }
    }
  }
  std::string error;
  const auto results = Evaluate(row.instruction, row.types, values, &error);
  ASSERT_EQ(error, "");
  const int width = WidthOf(row.types[0]);
  for (size_t i = 0; i < results.size(); ++i) {
    const auto operand = [&](size_t k) -> Int {
      if (k >= operands) return 0;
      const int bits = WidthOf(row.types[k + 1]);
      return Read(values[k][i], bits, row.is_signed && bits >= row.bits);
    };
    const Int expected = row.expected(operand(0), operand(1), operand(2));
    const uint64_t mask = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
    ASSERT_EQ(results[i] & mask, static_cast<uint64_t>(expected) & mask)
        << "operands " << values[0][i] << " " << (operands > 1 ? values[1][i] : 0) << " "
        << (operands > 2 ? values[2][i] : 0);
  }
}

std::string Name(const std::string& op, bool is_signed, int bits, const std::string& rest) {
  return op + (is_signed ? ".s" : ".u") + std::to_string(bits) + " " + rest;
}

// Products of 64-bit values need 128 bits and a sign: shifting them arithmetically is defined.
Int High(Int a, Int b, int bits, bool is_signed) {
  if (is_signed || bits < 64) return (a * b) >> bits;
  return static_cast<Int>((static_cast<unsigned __int128>(a) * static_cast<unsigned __int128>(b)) >>
                          64);
}

class IntegerTest : public testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(IntegerTest, Arithmetic) {
  const auto [bits, is_signed] = GetParam();
  const std::string r(1, bits == 16 ? 'h' : bits == 32 ? 'w' : 'l');
  const auto row = [&](const std::string& op, const std::string& rest, const std::string& types,
                       std::function<Int(Int, Int, Int)> expected) {
    Check({Name(op, is_signed, bits, rest), types, bits, is_signed, std::move(expected)});
  };
  row("add", "d, a, b;", r + r + r, [](Int a, Int b, Int) { return a + b; });
  row("sub", "d, a, b;", r + r + r, [](Int a, Int b, Int) { return a - b; });
  row("mul.lo", "d, a, b;", r + r + r, [](Int a, Int b, Int) {
    return static_cast<Int>(static_cast<unsigned __int128>(a) * static_cast<unsigned __int128>(b));
  });
  row("mul.hi", "d, a, b;", r + r + r, [bits = bits, is_signed = is_signed](Int a, Int b, Int) {
    return High(a, b, bits, is_signed);
  });
  row("mad.lo", "d, a, b, c;", r + r + r + r, [](Int a, Int b, Int c) {
    return static_cast<Int>(static_cast<unsigned __int128>(a) * static_cast<unsigned __int128>(b) +
                            static_cast<unsigned __int128>(c));
  });
  row("div", "d, a, b;", r + r + r, [](Int a, Int b, Int) { return b == 0 ? Int{-1} : a / b; });
  row("rem", "d, a, b;", r + r + r, [](Int a, Int b, Int) { return b == 0 ? a : a % b; });
  row("min", "d, a, b;", r + r + r, [](Int a, Int b, Int) { return a < b ? a : b; });
  row("max", "d, a, b;", r + r + r, [](Int a, Int b, Int) { return a < b ? b : a; });
  if (is_signed) {
    row("neg", "d, a;", r + r, [](Int a, Int, Int) { return -a; });
    row("abs", "d, a;", r + r, [](Int a, Int, Int) { return a < 0 ? -a : a; });
  }
  if (bits < 64) {
    const std::string wide(1, bits == 16 ? 'w' : 'l');
    row("mul.wide", "d, a, b;", wide + r + r, [](Int a, Int b, Int) { return a * b; });
    row("mad.wide", "d, a, b, c;", wide + r + r + wide,
        [](Int a, Int b, Int c) { return a * b + c; });
  }
  const std::vector<std::pair<std::string, std::function<bool(Int, Int)>>> comparisons = {
      {"eq", [](Int a, Int b) { return a == b; }}, {"ne", [](Int a, Int b) { return a != b; }},
      {"lt", [](Int a, Int b) { return a < b; }},  {"le", [](Int a, Int b) { return a <= b; }},
      {"gt", [](Int a, Int b) { return a > b; }},  {"ge", [](Int a, Int b) { return a >= b; }}};
  for (const auto& [name, holds] : comparisons) {
    row("setp." + name, "d, a, b;", "p" + r + r,
        [holds = holds](Int a, Int b, Int) { return Int{holds(a, b)}; });
  }
  row("shr", "d, a, b;", r + r + "w", [bits = bits](Int a, Int b, Int) {
    const Int n = b < 0 ? b + (Int{1} << 32) : b;
    return n >= bits ? (a < 0 ? Int{-1} : Int{0}) : a >> static_cast<int>(n);
  });
}

INSTANTIATE_TEST_SUITE_P(Types, IntegerTest,
                         testing::Combine(testing::Values(16, 32, 64), testing::Bool()));

TEST(BitsTest, LogicAndShifts) {
  for (const int bits : {16, 32, 64}) {
    const std::string r(1, bits == 16 ? 'h' : bits == 32 ? 'w' : 'l');
    const std::string b = ".b" + std::to_string(bits) + " ";
    Check(
        {"and" + b + "d, a, b;", r + r + r, bits, false, [](Int a, Int b, Int) { return a & b; }});
    Check({"or" + b + "d, a, b;", r + r + r, bits, false, [](Int a, Int b, Int) { return a | b; }});
    Check(
        {"xor" + b + "d, a, b;", r + r + r, bits, false, [](Int a, Int b, Int) { return a ^ b; }});
    Check({"not" + b + "d, a;", r + r, bits, false, [](Int a, Int, Int) { return ~a; }});
    Check({"shl" + b + "d, a, b;", r + r + "w", bits, false, [bits](Int a, Int n, Int) {
             return n >= bits ? Int{0}
                              : static_cast<Int>(static_cast<unsigned __int128>(a) << int(n));
           }});
    Check({"selp" + b + "d, a, b, c;", r + r + r + "p", bits, false,
           [](Int a, Int b, Int c) { return c != 0 ? a : b; }});
  }
}

TEST(BitsTest, FunnelShiftsAndBytes) {
  const auto both = [](Int low, Int high) {
    return static_cast<uint64_t>(high) << 32 | static_cast<uint64_t>(low);
  };
  Check({"shf.l.wrap.b32 d, a, b, c;", "wwww", 32, false, [&](Int a, Int b, Int c) {
           return Int{static_cast<uint32_t>((both(a, b) << (c & 31)) >> 32)};
         }});
  Check({"shf.r.wrap.b32 d, a, b, c;", "wwww", 32, false,
         [&](Int a, Int b, Int c) { return Int{static_cast<uint32_t>(both(a, b) >> (c & 31))}; }});
  Check({"shf.l.clamp.b32 d, a, b, c;", "wwww", 32, false, [&](Int a, Int b, Int c) {
           return c >= 32 ? a : Int{static_cast<uint32_t>((both(a, b) << c) >> 32)};
         }});
  Check({"shf.r.clamp.b32 d, a, b, c;", "wwww", 32, false, [&](Int a, Int b, Int c) {
           return c >= 32 ? b : Int{static_cast<uint32_t>(both(a, b) >> c)};
         }});
  Check({"prmt.b32 d, a, b, c;", "wwww", 32, false, [&](Int a, Int b, Int c) {
           Int r = 0;
           for (int i = 3; i >= 0; --i) {
             const int nibble = static_cast<int>(c >> (4 * i)) & 15;
             Int byte = Int{both(a, b)} >> (8 * (nibble % 8)) & 255;
             if (nibble >= 8) byte = byte >= 128 ? 255 : 0;
             r = r * 256 + byte;
           }
           return r;
         }});
  Check({"popc.b64 d, a;", "wl", 64, false,
         [](Int a, Int, Int) { return Int{__builtin_popcountll(static_cast<uint64_t>(a))}; }});
  Check({"clz.b32 d, a;", "ww", 32, false, [](Int a, Int, Int) {
           int n = 0;
           while (n < 32 && (a >> (31 - n) & 1) == 0) ++n;
           return Int{n};
         }});
  Check({"brev.b32 d, a;", "ww", 32, false, [](Int a, Int, Int) {
           Int r = 0;
           for (int i = 0; i < 32; ++i) r += (a >> i & 1) << (31 - i);
           return r;
         }});
}

TEST(BitsTest, BitFields) {
  // The field as the ISA writes it: bit by bit, the sign from the field's or the value's last bit.
  const auto field = [](uint64_t a, int bits, bool is_signed, uint64_t position, uint64_t length) {
    position &= 255;
    length &= 255;
    const uint64_t last =
        std::min<uint64_t>(position + length - 1, static_cast<uint64_t>(bits) - 1);
    const uint64_t sign = !is_signed || length == 0 ? 0 : a >> last & 1;
    Int r = 0;
    for (uint64_t i = static_cast<uint64_t>(bits); i-- > 0;) {
      const bool inside = i < length && position + i < static_cast<uint64_t>(bits);
      r = r * 2 + static_cast<Int>(inside ? a >> (position + i) & 1 : sign);
    }
    return r;
  };
  Check({"bfe.u32 d, a, b, c;", "wwww", 32, false, [&](Int a, Int b, Int c) {
           return field(static_cast<uint64_t>(a), 32, false, static_cast<uint64_t>(b),
                        static_cast<uint64_t>(c));
         }});
  Check({"bfe.s32 d, a, b, c;", "wwww", 32, false, [&](Int a, Int b, Int c) {
           return field(static_cast<uint64_t>(a), 32, true, static_cast<uint64_t>(b),
                        static_cast<uint64_t>(c));
         }});
  Check({"bfe.u64 d, a, b, c;", "llww", 64, false, [&](Int a, Int b, Int c) {
           return field(static_cast<uint64_t>(a), 64, false, static_cast<uint64_t>(b),
                        static_cast<uint64_t>(c));
         }});
  Check({"bfi.b32 d, a, b, c, 5;", "wwww", 32, false, [](Int a, Int b, Int c) {
           const int position = static_cast<int>(c & 255);
           if (position >= 32) return b;
           const Int mask = (Int{31} << position) & 0xffffffff;
           return (b & ~mask) | ((a << position) & mask);
         }});
}

TEST(CarryTest, CarriesGoFromOneInstructionToTheNext) {
  // 128-bit addition of (a, b) and (b, a).
  std::vector<std::vector<uint64_t>> values(2);
  std::mt19937_64 random(3);
  for (const uint64_t a : Edges(64)) {
    for (const uint64_t b : Edges(64)) {
      values[0].push_back(a);
      values[1].push_back(b ^ (random() % 2));
    }
  }
  std::string error;
  const auto high = Evaluate("add.cc.s64 d, a, b; addc.cc.s64 d, b, a;", "lll", values, &error);
  ASSERT_EQ(error, "");
  const auto low = Evaluate("sub.cc.s64 d, a, b; subc.cc.s64 d, b, a;", "lll", values, &error);
  ASSERT_EQ(error, "");
  for (size_t i = 0; i < high.size(); ++i) {
    using Wide = unsigned __int128;
    const Wide x = Wide{values[1][i]} << 64 | values[0][i];
    const Wide y = Wide{values[0][i]} << 64 | values[1][i];
    EXPECT_EQ(high[i], static_cast<uint64_t>((x + y) >> 64));
    EXPECT_EQ(low[i], static_cast<uint64_t>((x - y) >> 64));
  }
}

}  // namespace
}  // namespace fakecuda
