#include "engine/base/deficit_round_robin.h"

#include <algorithm>
#include <limits>

namespace telegrad {
namespace {

// Sums of fractions of nanoseconds that should be 0 are not quite.
constexpr double kRounding = 1e-3;

double WeightOf(const Share& share) {
  return static_cast<double>(std::max<int64_t>(share.weight, 1));
}

}  // namespace

// An absent tenant's debt is paid by the rounds that it missed, but nothing is saved up.
double DeficitRoundRobin::DebtAfterAbsence(const Flow& flow) const {
  if (flow.busy_period_ != busy_period_) return 0;
  return std::min(0.0, flow.deficit_ + WeightOf(flow.share()) * (spent_ - flow.left_at_));
}

void DeficitRoundRobin::Spend(double cost) {
  spent_ += cost / static_cast<double>(std::max<int64_t>(weight_, 1));
}

bool DeficitRoundRobin::IsSettled(const Flow& flow) const {
  return !flow.waiting_ && DebtAfterAbsence(flow) > -kRounding;
}

void DeficitRoundRobin::SetWaiting(Flow* flow, bool waiting) {
  if (flow->waiting_ == waiting) return;
  flow->waiting_ = waiting;
  const int64_t weight = std::max<int64_t>(flow->share().weight, 1);
  weight_ += waiting ? weight : -weight;
  if (!waiting) {
    (flow->fresh_ ? fresh_ : ring_).erase(flow->place_);
    flow->left_at_ = spent_;
    flow->busy_period_ = busy_period_;
    return;
  }
  flow->deficit_ = DebtAfterAbsence(*flow);
  flow->fresh_ = flow->deficit_ > -kRounding;
  std::list<Flow*>& list = flow->fresh_ ? fresh_ : ring_;
  flow->place_ = list.insert(list.end(), flow);
}

DeficitRoundRobin::Flow* DeficitRoundRobin::Next() {
  while (!fresh_.empty()) {
    Flow* const first = fresh_.front();
    if (first->deficit_ > -kRounding) return first;
    first->fresh_ = false;  // a correction put it into debt
    ring_.splice(ring_.end(), fresh_, first->place_);
  }
  if (ring_.empty()) return nullptr;
  const auto without_debt = [&] {
    return std::ranges::find_if(ring_, [](const Flow* f) { return f->deficit_ > -kRounding; });
  };
  auto next = without_debt();
  if (next == ring_.end()) {
    double round = std::numeric_limits<double>::infinity();
    for (const Flow* f : ring_) round = std::min(round, -f->deficit_ / WeightOf(f->share()));
    for (Flow* f : ring_) f->deficit_ += round * WeightOf(f->share());
    next = without_debt();
    if (next == ring_.end()) next = ring_.begin();  // only if a cost was no number
  }
  return *next;
}

void DeficitRoundRobin::Charge(Flow* flow, double cost) {
  flow->deficit_ -= cost;
  Spend(cost);
  if (!flow->waiting_) return;
  ring_.splice(ring_.end(), flow->fresh_ ? fresh_ : ring_, flow->place_);
  flow->fresh_ = false;
}

void DeficitRoundRobin::Correct(Flow* flow, double predicted, double measured) {
  if (!flow->waiting_) {
    flow->deficit_ = DebtAfterAbsence(*flow);
    flow->left_at_ = spent_;
    flow->busy_period_ = busy_period_;
  }
  flow->deficit_ += predicted - measured;
  Spend(measured - predicted);
}

}  // namespace telegrad
