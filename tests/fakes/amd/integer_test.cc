// Integer operations of all widths, compiled by LLVM for every target, against the host.
#include "tests/fakes/amd/testing/elementwise.h"

namespace fakeamd {
namespace {

template <class U>
void AllBinary() {
  using S = std::make_signed_t<U>;
  constexpr U kBits = sizeof(U) * 8;
  const std::string t = TypeOf<U>().name;
  const auto op = [&](const std::string& name) { return "  %r = " + name + " " + t + " %a, %b"; };
  const auto call = [&](const std::string& name) {
    return "  %r = call " + t + " @llvm." + name + "." + t + "(" + t + " %a, " + t + " %b)";
  };
  const auto declared = [&](const std::string& name) {
    return "declare " + t + " @llvm." + name + "." + t + "(" + t + ", " + t + ")\n";
  };
  ExpectBinary<U>("add", op("add"), [](U a, U b) { return static_cast<U>(a + b); });
  ExpectBinary<U>("sub", op("sub"), [](U a, U b) { return static_cast<U>(a - b); });
  ExpectBinary<U>("mul", op("mul"), [](U a, U b) { return static_cast<U>(uint64_t{a} * b); });
  ExpectBinary<U>("and", op("and"), [](U a, U b) { return static_cast<U>(a & b); });
  ExpectBinary<U>("or", op("or"), [](U a, U b) { return static_cast<U>(a | b); });
  ExpectBinary<U>("xor", op("xor"), [](U a, U b) { return static_cast<U>(a ^ b); });
  const std::string count = "  %n = and " + t + " %b, " + std::to_string(kBits - 1) + "\n  %r = ";
  ExpectBinary<U>("shl", count + "shl " + t + " %a, %n",
                  [](U a, U b) { return static_cast<U>(a << (b & (kBits - 1))); });
  ExpectBinary<U>("lshr", count + "lshr " + t + " %a, %n",
                  [](U a, U b) { return static_cast<U>(a >> (b & (kBits - 1))); });
  ExpectBinary<U>("ashr", count + "ashr " + t + " %a, %n",
                  [](U a, U b) { return static_cast<U>(static_cast<S>(a) >> (b & (kBits - 1))); });
  const std::string nonzero = "  %zero = icmp eq " + t + " %b, 0\n  %d = select i1 %zero, " + t +
                              " 1, " + t + " %b\n  %r = ";
  ExpectBinary<U>("udiv", nonzero + "udiv " + t + " %a, %d",
                  [](U a, U b) { return static_cast<U>(a / (b == 0 ? 1 : b)); });
  ExpectBinary<U>("urem", nonzero + "urem " + t + " %a, %d",
                  [](U a, U b) { return static_cast<U>(a % (b == 0 ? 1 : b)); });
  ExpectBinary<U>("umin", call("umin"), [](U a, U b) { return std::min(a, b); }, declared("umin"));
  ExpectBinary<U>("umax", call("umax"), [](U a, U b) { return std::max(a, b); }, declared("umax"));
  ExpectBinary<U>(
      "smin", call("smin"),
      [](U a, U b) { return static_cast<U>(std::min(static_cast<S>(a), static_cast<S>(b))); },
      declared("smin"));
  ExpectBinary<U>(
      "smax", call("smax"),
      [](U a, U b) { return static_cast<U>(std::max(static_cast<S>(a), static_cast<S>(b))); },
      declared("smax"));
  const auto compare = [&](const std::string& name) {
    return "  %c = icmp " + name + " " + t + " %a, %b\n  %r = select i1 %c, " + t + " %a, " + t +
           " 77";
  };
  ExpectBinary<U>("slt", compare("slt"),
                  [](U a, U b) { return static_cast<S>(a) < static_cast<S>(b) ? a : U{77}; });
  ExpectBinary<U>("ult", compare("ult"), [](U a, U b) { return a < b ? a : U{77}; });
  ExpectBinary<U>("ne", compare("ne"), [](U a, U b) { return a != b ? a : U{77}; });
  ExpectBinary<U>("sge", compare("sge"),
                  [](U a, U b) { return static_cast<S>(a) >= static_cast<S>(b) ? a : U{77}; });
}

TEST(AmdIntegerTest, Binary8) { AllBinary<uint8_t>(); }
TEST(AmdIntegerTest, Binary16) { AllBinary<uint16_t>(); }
TEST(AmdIntegerTest, Binary32) { AllBinary<uint32_t>(); }
TEST(AmdIntegerTest, Binary64) { AllBinary<uint64_t>(); }

TEST(AmdIntegerTest, SignedDivision) {
  const std::string body =
      "  %zero = icmp eq i32 %b, 0\n  %minus = icmp eq i32 %b, -1\n  %bad = or i1 %zero, %minus\n"
      "  %d = select i1 %bad, i32 3, i32 %b\n  %r = ";
  const auto safe = [](int32_t b) { return b == 0 || b == -1 ? 3 : b; };
  ExpectBinary<int32_t>("sdiv", body + "sdiv i32 %a, %d",
                        [&](int32_t a, int32_t b) { return a / safe(b); });
  ExpectBinary<int32_t>("srem", body + "srem i32 %a, %d",
                        [&](int32_t a, int32_t b) { return a % safe(b); });
}

// LLVM sums four products of bytes by one instruction.
TEST(AmdIntegerTest, DotProductsOfBytes) {
  const auto body = [](bool of_a, bool of_b) {
    std::string code, sum = "%c";
    for (int n = 0; n < 4; ++n) {
      const std::string k = std::to_string(n);
      for (const char x : {'a', 'b'}) {
        const std::string shifted = std::string("%s") + x + k, byte = std::string("%y") + x + k;
        code += "  " + shifted + " = lshr i32 %" + x + ", " + std::to_string(8 * n) + "\n  " +
                byte + "i = trunc i32 " + shifted + " to i8\n  " + byte + " = " +
                ((x == 'a' ? of_a : of_b) ? "sext" : "zext") + " i8 " + byte + "i to i32\n";
      }
      const std::string next = n == 3 ? "%r" : "%t" + k;
      code += "  %p" + k + " = mul i32 %ya" + k + ", %yb" + k + "\n  " + next + " = add i32 %p" +
              k + ", " + sum + "\n";
      sum = next;
    }
    code.pop_back();
    return code;
  };
  for (const bool of_a : {false, true}) {
    for (const bool of_b : {false, true}) {
      ExpectTernary<uint32_t>("dot4", body(of_a, of_b), [&](uint32_t a, uint32_t b, uint32_t c) {
        for (int n = 0; n < 4; ++n) {
          const auto byte = [&](uint32_t x, bool with_sign) -> int32_t {
            const auto bits = static_cast<uint8_t>(x >> (8 * n));
            return with_sign ? static_cast<int8_t>(bits) : bits;
          };
          c += static_cast<uint32_t>(byte(a, of_a) * byte(b, of_b));
        }
        return c;
      });
    }
  }
}

TEST(AmdIntegerTest, Bits) {
  const auto one = [](const std::string& name, const std::string& rest) {
    return "  %r = call i32 @llvm." + name + ".i32(i32 %a" + rest + ")";
  };
  ExpectUnary<uint32_t>(
      "ctpop", one("ctpop", ""), [](uint32_t a) { return static_cast<uint32_t>(std::popcount(a)); },
      "declare i32 @llvm.ctpop.i32(i32)\n");
  ExpectUnary<uint32_t>(
      "ctlz", one("ctlz", ", i1 false"),
      [](uint32_t a) { return static_cast<uint32_t>(std::countl_zero(a)); },
      "declare i32 @llvm.ctlz.i32(i32, i1)\n");
  ExpectUnary<uint32_t>(
      "cttz", one("cttz", ", i1 false"),
      [](uint32_t a) { return static_cast<uint32_t>(std::countr_zero(a)); },
      "declare i32 @llvm.cttz.i32(i32, i1)\n");
  ExpectUnary<uint32_t>(
      "bswap", one("bswap", ""), [](uint32_t a) { return __builtin_bswap32(a); },
      "declare i32 @llvm.bswap.i32(i32)\n");
  ExpectUnary<uint32_t>("field", "  %s = shl i32 %a, 7\n  %r = ashr i32 %s, 19", [](uint32_t a) {
    return static_cast<uint32_t>(static_cast<int32_t>(a << 7) >> 19);
  });
  ExpectTernary<uint32_t>(
      "fshr", "  %r = call i32 @llvm.fshr.i32(i32 %a, i32 %b, i32 %c)",
      [](uint32_t a, uint32_t b, uint32_t c) {
        return static_cast<uint32_t>((uint64_t{a} << 32 | b) >> (c & 31));
      },
      "declare i32 @llvm.fshr.i32(i32, i32, i32)\n");
  ExpectTernary<uint32_t>("mul add", "  %m = mul i32 %a, %b\n  %r = add i32 %m, %c",
                          [](uint32_t a, uint32_t b, uint32_t c) { return a * b + c; });
  ExpectTernary<uint64_t>("mul add 64", "  %m = mul i64 %a, %b\n  %r = add i64 %m, %c",
                          [](uint64_t a, uint64_t b, uint64_t c) { return a * b + c; });
  ExpectBinary<uint32_t>(
      "mulhi",
      "  %x = zext i32 %a to i64\n  %y = zext i32 %b to i64\n  %m = mul i64 %x, %y\n"
      "  %h = lshr i64 %m, 32\n  %r = trunc i64 %h to i32",
      [](uint32_t a, uint32_t b) { return static_cast<uint32_t>(uint64_t{a} * b >> 32); });
  ExpectBinary<uint32_t>(
      "uadd.sat", "  %r = call i32 @llvm.uadd.sat.i32(i32 %a, i32 %b)",
      [](uint32_t a, uint32_t b) { return a + b < a ? ~uint32_t{0} : a + b; },
      "declare i32 @llvm.uadd.sat.i32(i32, i32)\n");
  ExpectBinary<uint32_t>("threefry step",  // the rotation and the sum of a random number generator
                         "  %s = add i32 %a, %b\n  %l = shl i32 %b, 13\n  %h = lshr i32 %b, 19\n"
                         "  %o = or i32 %l, %h\n  %r = xor i32 %s, %o",
                         [](uint32_t a, uint32_t b) { return (a + b) ^ std::rotl(b, 13); });
}

}  // namespace
}  // namespace fakeamd
