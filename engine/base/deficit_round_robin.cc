#include "engine/base/deficit_round_robin.h"

#include <algorithm>
#include <limits>

namespace telegrad {
namespace {

// Sums of fractions of nanoseconds that should be 0 are not quite.
constexpr double kRounding = 1e-3;

}  // namespace

// An absent tenant's debt is paid by the rounds that it missed, but nothing is saved up.
double DeficitRoundRobin::DebtAfterAbsence(const Flow& flow) const {
  if (flow.busy_period_ != busy_period_) return 0;
  return std::min(0.0,
                  flow.deficit_ + static_cast<double>(flow.weight_) * (spent_ - flow.left_at_));
}

void DeficitRoundRobin::Spend(double cost) {
  spent_ += cost / static_cast<double>(std::max<int64_t>(weight_, 1));
}

bool DeficitRoundRobin::IsSettled(const Flow& flow) const {
  return !flow.waiting_ && DebtAfterAbsence(flow) > -kRounding;
}

// A weight may change while its flow waits, even for years: so it is counted as it was looked at.
void DeficitRoundRobin::LookAtWeight(Flow* flow) {
  const int64_t weight = flow->share().weight();
  if (flow->waiting_) weight_ += weight - flow->weight_;
  flow->weight_ = weight;
}

void DeficitRoundRobin::SetWaiting(Flow* flow, bool waiting) {
  if (flow->waiting_ == waiting) return;
  LookAtWeight(flow);
  flow->waiting_ = waiting;
  weight_ += waiting ? flow->weight_ : -flow->weight_;
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
  Flow* next = ring_.front();  // also if a cost was no number
  double least = std::numeric_limits<double>::infinity();
  for (Flow* f : ring_) {
    LookAtWeight(f);
    const double round = RoundOf(*f);
    if (round >= least) continue;
    least = round;
    next = f;
  }
  return next;
}

// How long a round has to be that pays the flow's debt.
double DeficitRoundRobin::RoundOf(const Flow& flow) {
  if (flow.deficit_ > -kRounding) return 0;
  return -flow.deficit_ / static_cast<double>(flow.weight_);
}

void DeficitRoundRobin::Charge(Flow* flow, double cost) {
  if (flow->waiting_ && !flow->fresh_) {
    const double round = RoundOf(*flow);
    for (Flow* f : ring_) {
      if (f->deficit_ >= 0) continue;
      f->deficit_ = std::min(0.0, f->deficit_ + round * static_cast<double>(f->weight_));
    }
  }
  flow->deficit_ -= cost;
  Spend(cost);
  if (!flow->waiting_) return;
  ring_.splice(ring_.end(), flow->fresh_ ? fresh_ : ring_, flow->place_);
  flow->fresh_ = false;
}

void DeficitRoundRobin::Correct(Flow* flow, double predicted, double measured) {
  if (!flow->waiting_) flow->deficit_ = DebtAfterAbsence(*flow);
  flow->deficit_ += predicted - measured;
  Spend(measured - predicted);
  if (flow->waiting_) return;
  flow->left_at_ = spent_;  // after its own correction, which pays no debt and is none
  flow->busy_period_ = busy_period_;
}

}  // namespace telegrad
