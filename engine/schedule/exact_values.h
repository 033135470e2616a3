// Which values have to be computed once because a comparison needs the same bits in every place.
//
// A kernel may add the terms of a sum in any order, so two kernels, or two loops of one, can
// compute the same float sum with different last bits. Most users of a sum do not notice. A
// comparison of a sum with a value that was selected from sums does: `argmax` compares x with the
// maximum of x and finds no equal element if either was computed with other bits.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ir/graph.h"

namespace telegrad {

// By node id, for the nodes of `order`, a post-order of a verified tensor graph. A value is marked
// if a sum is part of it and both sides of one comparison select their elements from it: by views,
// by WHERE, MAX or MIN, or by a reduction to the maximum or minimum.
std::vector<bool> ExactValues(const Graph& graph, const std::vector<uint32_t>& order);

}  // namespace telegrad
