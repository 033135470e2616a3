// Threefry-2x32-20 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
// (SC 2011): 20 rounds of add, rotate, exclusive or on two 32-bit words, and a part of the key
// after every fourth.
#include "engine/rewrite/rule.h"
#include "engine/rules/decompositions_functions.h"

namespace telegrad {

UOp DecomposeThreefry(Rewriter& b, const Match& m) {
  constexpr int kRotations[8] = {13, 15, 26, 6, 17, 29, 16, 24};
  constexpr int64_t kParity = 0x1BD11BDA;
  const Term counter{&b, m.x()}, key{&b, m.y()};
  const Term key0 = key.Cast(DType::kUInt32), key1 = (key >> 32).Cast(DType::kUInt32);
  const Term keys[3] = {key0, key1, key0 ^ key1 ^ key0.Word(kParity)};
  Term x = counter.Cast(DType::kUInt32) + key0;
  Term y = (counter >> 32).Cast(DType::kUInt32) + key1;
  for (int round = 0; round < 20; ++round) {
    const int rotation = kRotations[round % 8];
    x = x + y;
    y = ((y << rotation) | (y >> (32 - rotation))) ^ x;
    if (round % 4 != 3) continue;
    const int injection = round / 4 + 1;
    x = x + keys[injection % 3];
    y = y + keys[(injection + 1) % 3] + y.Word(injection);
  }
  return ((y.Cast(DType::kUInt64) << 32) | x.Cast(DType::kUInt64)).u;
}

}  // namespace telegrad
