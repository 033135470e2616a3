// The custom mutator and crossover of the targets whose input is a serialized v1::Graph.
#pragma once

namespace telegrad::fuzz {

// One in so many mutants is damaged as a message or as bytes; each target defines its own.
extern const int kDamageOneIn;

}  // namespace telegrad::fuzz
