// The interface through which counts, times and traces of rules are gathered. A rewriter without an
// observer tests a single pointer per node.
#pragma once

#include <cstdint>

#include "engine/rewrite/rule.h"

namespace telegrad {

// One row that was tried at one node.
struct RuleTry {
  const RuleTable* table = nullptr;
  const Rule* rule = nullptr;
  UOp before;
  UOp after;                 // invalid: the row does not match
  int64_t nanoseconds = -1;  // without the rewrites of the nodes that its replacement made; -1: not
                             // one of the tries that are timed
};

class RewriteObserver {
 public:
  virtual ~RewriteObserver() = default;
  // Called after the try; the tries at the nodes of the replacement have been reported before.
  virtual void OnTry(const RuleTry& what) = 0;
};

}  // namespace telegrad
