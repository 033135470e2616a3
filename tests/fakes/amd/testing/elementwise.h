// Tests of single operations: a kernel that applies some LLVM IR to arrays, run on every target,
// and what the host computes for the same values.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/fakes/amd/half.h"
#include "tests/fakes/amd/testing/run_kernel.h"

namespace fakeamd {

inline const std::vector<std::string>& Processors() {
  static const std::vector<std::string> names = {"gfx90a", "gfx942", "gfx1100", "gfx1201"};
  return names;
}

// LLVM's name of a type and how many bytes it has in memory; i1 results are stored as bytes.
struct IrType {
  std::string name;
  uint32_t bytes;
};

// A kernel of `threads` threads a group that loads %a, %b, ... of element `thread`, runs `body`,
// which sets %r, and stores %r. `more` follows the function (declarations).
inline std::string ElementwiseIr(const std::vector<IrType>& inputs, const IrType& output,
                                 const std::string& body, int threads,
                                 const std::string& more = "") {
  std::string parameters = "ptr addrspace(1) noalias %out";
  std::string code =
      "  %group = call i32 @llvm.amdgcn.workgroup.id.x()\n"
      "  %local = call i32 @llvm.amdgcn.workitem.id.x()\n"
      "  %base = mul i32 %group, " +
      std::to_string(threads) +
      "\n"
      "  %i32 = add i32 %base, %local\n"
      "  %i = zext i32 %i32 to i64\n";
  for (size_t k = 0; k < inputs.size(); ++k) {
    const std::string x(1, static_cast<char>('a' + k));
    parameters += ", ptr addrspace(1) noalias readonly %in" + x;
    code += "  %p" + x + " = getelementptr " + inputs[k].name + ", ptr addrspace(1) %in" + x +
            ", i64 %i\n  %" + x + " = load " + inputs[k].name + ", ptr addrspace(1) %p" + x + "\n";
  }
  code += body + "\n  %pr = getelementptr " + output.name +
          ", ptr addrspace(1) %out, i64 %i\n  store " + output.name +
          " %r, ptr addrspace(1) %pr\n  ret void";
  return KernelIr("test", parameters, code, threads) + more;
}

// Values that are likely to be wrong, and random bits.
template <class T>
std::vector<T> Interesting(size_t count, uint32_t seed) {
  using Bits =
      std::conditional_t<sizeof(T) == 8, uint64_t,
                         std::conditional_t<sizeof(T) == 4, uint32_t,
                                            std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;
  std::mt19937_64 random(seed);
  std::vector<T> values;
  constexpr int kBits = sizeof(T) * 8;
  std::vector<Bits> special = {0, 1, 2, 3, 5, 7, static_cast<Bits>(-1), static_cast<Bits>(-2)};
  special.push_back(static_cast<Bits>(Bits{1} << (kBits - 1)));
  special.push_back(static_cast<Bits>((Bits{1} << (kBits - 1)) - 1));
  if constexpr (std::is_same_v<T, float>) {
    for (const float x :
         {0.0f, -0.0f, 1.0f, -1.0f, 0.5f, 3.0f, 1e30f, -1e-30f, 1e-42f, 0x1p-126f, 0x1p127f,
          INFINITY, -INFINITY, NAN, 2147483648.0f, 4294967296.0f, -2147483648.0f}) {
      special.push_back(std::bit_cast<uint32_t>(x));
    }
  }
  if constexpr (std::is_same_v<T, double>) {
    for (const double x :
         {0.0, -0.0, 1.0, -1.0, 0.1, 3.0, 1e300, -1e-300, 5e-324, 0x1p-1022, 0x1p1023,
          double{INFINITY}, -double{INFINITY}, double{NAN}, 2147483648.0, 4294967295.5}) {
      special.push_back(std::bit_cast<uint64_t>(x));
    }
  }
  for (size_t i = 0; i < count; ++i) {
    const uint64_t r = random();
    Bits bits = static_cast<Bits>(random());
    if (r % 3 == 0) bits = special[(r >> 8) % special.size()];
    if (r % 3 == 1) {
      // Numbers of a moderate size.
      const auto small = static_cast<int64_t>(r >> 8) % 1000 - 500;
      if constexpr (std::is_floating_point_v<T>) {
        bits = std::bit_cast<Bits>(static_cast<T>(static_cast<double>(small) / 8));
      } else {
        bits = static_cast<Bits>(small);
      }
    }
    values.push_back(std::bit_cast<T>(bits));
  }
  return values;
}

template <class T>
bool SameValue(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    return std::bit_cast<std::array<uint8_t, sizeof(T)>>(a) ==
           std::bit_cast<std::array<uint8_t, sizeof(T)>>(b);
  } else {
    return a == b;
  }
}

inline constexpr int kTestThreads = 128;
inline constexpr uint32_t kTestGroups = 4;
inline constexpr size_t kTestElements = kTestThreads * kTestGroups;

// Runs `body` on the arrays on every target and compares each element with `expected`.
template <class R>
void ExpectElements(const std::string& what, const std::vector<IrType>& types, const IrType& output,
                    const std::string& body, const std::vector<Bytes>& inputs,
                    const std::vector<R>& expected, const std::string& more = "") {
  const std::string ir = ElementwiseIr(types, output, body, kTestThreads, more);
  for (const std::string& processor : Processors()) {
    SCOPED_TRACE(what + " on " + processor);
    std::vector<Bytes> buffers = {Bytes(expected.size() * sizeof(R))};
    buffers.insert(buffers.end(), inputs.begin(), inputs.end());
    const TestRun run =
        RunIr(ir, processor, {.groups = kTestGroups, .threads = kTestThreads}, &buffers);
    ASSERT_EQ(run.error, "");
    ASSERT_EQ(run.fault.message, "");
    const std::vector<R> got = FromBytes<R>(buffers[0]);
    int shown = 0;
    for (size_t i = 0; i < expected.size() && shown < 3; ++i) {
      if (SameValue(got[i], expected[i])) continue;
      ++shown;
      std::string operands;
      for (size_t k = 0; k < inputs.size(); ++k) {
        uint64_t bits = 0;
        std::memcpy(&bits, inputs[k].data() + i * types[k].bytes, std::min(types[k].bytes, 8u));
        operands += " " + std::to_string(bits);
      }
      ADD_FAILURE() << "element " << i << " of operands with the bits" << operands << ": "
                    << +got[i] << " instead of " << +expected[i];
    }
  }
}

template <class T>
IrType TypeOf() {
  if constexpr (std::is_same_v<T, float>) return {"float", 4};
  if constexpr (std::is_same_v<T, double>) return {"double", 8};
  return {"i" + std::to_string(sizeof(T) * 8), sizeof(T)};
}

template <class T, class F>
void ExpectUnary(const std::string& what, const std::string& body, F f,
                 const std::string& more = "") {
  using R = decltype(f(T{}));
  const std::vector<T> a = Interesting<T>(kTestElements, 1);
  std::vector<R> expected;
  for (size_t i = 0; i < a.size(); ++i) expected.push_back(f(a[i]));
  ExpectElements<R>(what, {TypeOf<T>()}, TypeOf<R>(), body, {ToBytes(a)}, expected, more);
}

template <class T, class F>
void ExpectBinary(const std::string& what, const std::string& body, F f,
                  const std::string& more = "") {
  using R = decltype(f(T{}, T{}));
  const std::vector<T> a = Interesting<T>(kTestElements, 2);
  const std::vector<T> b = Interesting<T>(kTestElements, 3);
  std::vector<R> expected;
  for (size_t i = 0; i < a.size(); ++i) expected.push_back(f(a[i], b[i]));
  ExpectElements<R>(what, {TypeOf<T>(), TypeOf<T>()}, TypeOf<R>(), body, {ToBytes(a), ToBytes(b)},
                    expected, more);
}

template <class T, class F>
void ExpectTernary(const std::string& what, const std::string& body, F f,
                   const std::string& more = "") {
  using R = decltype(f(T{}, T{}, T{}));
  const std::vector<T> a = Interesting<T>(kTestElements, 4);
  const std::vector<T> b = Interesting<T>(kTestElements, 5);
  const std::vector<T> c = Interesting<T>(kTestElements, 6);
  std::vector<R> expected;
  for (size_t i = 0; i < a.size(); ++i) expected.push_back(f(a[i], b[i], c[i]));
  ExpectElements<R>(what, {TypeOf<T>(), TypeOf<T>(), TypeOf<T>()}, TypeOf<R>(), body,
                    {ToBytes(a), ToBytes(b), ToBytes(c)}, expected, more);
}

}  // namespace fakeamd
