// COPY, UNSHARD and ALLREDUCE spelled out for the instances of a value: what moves, and what each
// device computes. The nodes made are on one device each (the place of a UOp), or anywhere; the
// only op left that crosses devices is a COPY to one device.
//
// ALLREDUCE has three algorithms. With n instances of S bytes, of which the chunk c is the c-th of
// n nearly equal parts (the first N % n of N elements are one longer):
//
//   naive       the first device receives every instance, reduces them and sends the result to all.
//               It sends (n-1)S, every other device S.
//   all to all  device c receives chunk c of every instance, reduces it and sends it to all. It
//               sends S - |chunk c| and then (n-1)|chunk c|: 2(n-1)/n S where n divides N.
//   ring        partial sums go round: the reduction of chunk c starts on device c and ends on
//               device c-1, whose result goes round once more. Device i sends
//               2S - |chunk i+1| - |chunk i+2|: also 2(n-1)/n S where n divides N. A device holds
//               one incoming chunk at a time and sends to its neighbour only.
//
// Values with symbolic sizes are chosen for by their bounds, and divided along their longest fixed
// axis in place of all elements: of each chunk, a run sends what it has. Where no fixed axis has
// two elements, naive it is.
//
// The order of a reduction: naive and all to all reduce in the order of the devices, as REDUCE
// does; the ring reduces chunk c in the order c, c+1, ... c-1, which on floats may round
// differently. Floats under 32 bits reduce in f32 and round once; so a ring's partial sums travel
// as f32.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/budget.h"
#include "engine/ir/graph.h"

namespace telegrad {

enum class AllReduceAlgorithm : uint8_t { kBySize, kBySizeOverLinks, kNaive, kAllToAll, kRing };

// What the first means for n instances of that size: naive for little data, whose cost is the
// number of transfers; ring for so much that a device should not hold all parts at once. What the
// second means, where devices are reached over a network: ring for all but little data, so that
// each server sends to one other and receives from one.
AllReduceAlgorithm ChooseAllReduce(int64_t bytes, int64_t instances, bool over_links = false);

// Elements of chunk `c` of `n` of `elements`, and where it begins.
struct Chunk {
  int64_t begin = 0;
  int64_t size = 0;
};
Chunk ChunkOf(int64_t elements, int64_t n, int64_t c);

// `x` on `device`. What is anywhere or there already is itself; a view moves as its smallest
// source, and is taken where it arrives. Spends steps; an error is the graph's.
UOp CopyTo(Graph* g, UOp x, int64_t device, Budget* budget);

// The reduction of values of one place, in order; under 32 bits in f32, rounded once.
UOp FoldValues(Graph* g, ReduceKind kind, std::span<const UOp> values);

// The parts one after another along an axis.
UOp Concatenate(Graph* g, std::vector<UOp> parts, int64_t axis);

// The instances that ALLREDUCE makes of `values`, instance i on devices[i].
std::vector<UOp> AllReduceInstances(Graph* g, ReduceKind kind, std::span<const UOp> values,
                                    std::span<const int64_t> devices, AllReduceAlgorithm algorithm,
                                    Budget* budget);

}  // namespace telegrad
