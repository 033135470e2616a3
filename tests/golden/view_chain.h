// A chain of views is checked and shown: the kernel that a tensor graph of movement ops becomes, as
// one line of text, and its value at every point against a walk along the chain by numbers.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "engine/schedule/schedule.h"

namespace telegrad::test {

// Its loops, then what it stores: "i0<4 i1<8: out[i0*8 + i1] = in[i0 + i1*4]"; an access is
// followed by its gate, "in[i0 - 1 if 0 < i0]".
std::string Text(const FrozenGraph& kernel);

// Compares a kernel with the chain that it was made of: `value` is one PARAM under movement ops, or
// a sum over axes of that. Every point is looked at where there are at most `points`, else so many
// random ones. Returns what differs.
std::string Difference(UOp value, const FrozenGraph& kernel, int64_t points,
                       std::mt19937_64* random);

}  // namespace telegrad::test
