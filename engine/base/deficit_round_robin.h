// Decides which of the tenants that share a device or a pool of compilers is served next: deficit
// round robin (Shreedhar and Varghese, SIGCOMM 1995), charged after service. A tenant that is
// served incurs a debt of the predicted cost, which is later corrected to the measured cost, and
// waits for its next turn until the debt is paid. Debts are paid in rounds, for each waiting tenant
// in proportion to its weight. A round is as long as the first of them needs, so that the others
// use capacity that a tenant leaves at once.
//
// A tenant that had no work and has no debt comes before those that were served in this round: it
// waits only for work that was handed out before.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <utility>

#include "engine/base/share.h"

namespace telegrad {

// Not thread-safe.
class DeficitRoundRobin {
 public:
  // The work of one tenant that waits for the resource. Users derive from it.
  class Flow {
   public:
    explicit Flow(std::shared_ptr<const Share> share) : share_(std::move(share)) {}
    const Share& share() const { return *share_; }
    bool waiting() const { return waiting_; }
    // In the unit of costs; below 0: a debt.
    double deficit() const { return deficit_; }

   private:
    friend class DeficitRoundRobin;
    const std::shared_ptr<const Share> share_;
    int64_t weight_ = 1;  // of the share, when it was last looked at
    bool waiting_ = false;
    double deficit_ = 0;
    double left_at_ =
        0;  // what had been spent for each unit of weight when it last stopped waiting
    uint64_t busy_period_ = 0;  // in which that was
    std::list<Flow*>::iterator place_ = {};
    bool fresh_ = false;  // which of the lists has its place
  };

  // Marks the flow as waiting for service, or as not waiting. A second call changes nothing.
  void SetWaiting(Flow* flow, bool waiting);
  // The flow to serve next; null if none is waiting. Nothing changes before it is charged: where
  // there is no room for its work yet, one that comes meanwhile and owes less is next.
  Flow* Next();
  // Charges the flow, which Next has named, with the predicted cost of what it is served, after the
  // round that pays its debt; its next turn comes after the others'.
  void Charge(Flow* flow, double cost);
  // Corrects an earlier charge of `predicted` to the measured cost.
  void Correct(Flow* flow, double predicted, double measured);
  // No work waits and none is under way, so no tenant was delayed: cancels all debts.
  void ForgetDebts() { ++busy_period_; }
  // Whether the flow has no debt and may be destroyed.
  bool IsSettled(const Flow& flow) const;

 private:
  static double RoundOf(const Flow& flow);
  double DebtAfterAbsence(const Flow& flow) const;
  void Spend(double cost);
  void LookAtWeight(Flow* flow);

  // Those that are waiting, in the order of their turns.
  std::list<Flow*> fresh_;  // came with no debt and were not served since
  std::list<Flow*> ring_;
  int64_t weight_ = 0;  // of those that are waiting
  // Service so far for each unit of weight that was waiting at the time. The debts of waiting flows
  // are paid in rounds, each as long as one turn of every flow. The debt of an absent flow is paid
  // continuously, so that a small one does not delay it by a whole round when it returns.
  double spent_ = 0;
  uint64_t busy_period_ = 1;
};

}  // namespace telegrad
