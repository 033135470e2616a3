// A trace of rewriting: each pass and each rule that matched is a step, and the steps are one
// static HTML page that needs nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/rewrite/observer.h"
#include "engine/rewrite/pass.h"

namespace telegrad {

class Trace : public RewriteObserver {
 public:
  // Steps of rules past `limit` are counted, not kept.
  explicit Trace(int64_t limit) : limit_(limit) {}

  void BeginPass(const PassRow& row, const Piece& piece);
  void OnTry(const RuleTry& what) override;
  void EndPass(const std::vector<Piece>& pieces);

  // The page, titled `title`.
  std::string Html(std::string_view title) const;

 private:
  struct Step {
    size_t pass;
    const RuleTable* table = nullptr;  // null: the whole pass
    const Rule* rule = nullptr;
    UOp before, after;
  };
  struct PassStep {
    std::string name;
    std::vector<std::string> before, after;  // lines
  };

  int64_t limit_;
  int64_t rewrites_ = 0;
  std::vector<PassStep> passes_;
  std::vector<Step> steps_;
  std::vector<std::shared_ptr<Graph>> graphs_;  // of the steps' nodes
};

}  // namespace telegrad
