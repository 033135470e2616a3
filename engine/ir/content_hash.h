// The content hash of a graph, by which caches, sessions and servers identify it.
#pragma once

#include <string>

#include "engine/base/hash.h"
#include "engine/ir/graph.h"

namespace telegrad {

// The canonical byte form of the nodes that `root` depends on, in post-order: the number of nodes,
// then for each node its op and dtype (wire numbers), the number of sources, the sources
// (positions), the number of argument words (all u32) and the words (u64); everything
// little-endian. Two graphs have the same bytes exactly if they have the same structure, whatever
// order they were made in.
std::string CanonicalBytes(UOp root);

// SHA-256 of CanonicalBytes: the same in every process and on every machine.
Digest ContentHash(UOp root);

}  // namespace telegrad
