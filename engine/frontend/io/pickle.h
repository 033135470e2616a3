// A reader of Python pickles that runs nothing: it builds a graph of plain values, in which a call
// is a value too. Opcodes are those that PyTorch's serialization writes; classes and functions are
// those of the caller's table, and everything else is refused by name. Python's pickletools.py
// describes the opcodes.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/budget.h"

namespace telegrad {

struct PickleGlobal {
  std::string_view module, name;
  bool makes_dict =
      false;  // called without arguments it gives a dict, whose attributes are left out
};

struct PickleValue {
  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,
    kString,  // bytes too
    kTuple,
    kList,
    kDict,        // items: key, value, key, value ...
    kGlobal,      // number: the row of the table
    kCall,        // items: the global, the tuple of arguments
    kPersistent,  // items: what names an object outside of the pickle
  };
  Kind kind = Kind::kNone;
  int64_t number = 0;
  double real = 0;
  std::string_view text = {};  // of the pickle's bytes
  std::vector<uint32_t> items = {};
};

struct Pickle {
  std::vector<PickleValue> values;
  uint32_t root = 0;
  // Lists and dicts may hold themselves, and all may be held many times: who walks the graph bounds
  // depth and steps.
};

// `bytes` outlive the result. Spends a node for each value, mark and memo. INVALID_ARGUMENT for a
// pickle that is malformed, UNIMPLEMENTED with the byte and the name for what is refused.
absl::StatusOr<Pickle> ReadPickle(std::string_view bytes, std::span<const PickleGlobal> globals,
                                  Budget* budget);

}  // namespace telegrad
