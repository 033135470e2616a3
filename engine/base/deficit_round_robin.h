// Whose turn it is among tenants that share a device or a pool of compilers: deficit round robin
// (Shreedhar and Varghese, SIGCOMM 1995) with a deficit that is paid afterwards. Whoever is served
// owes what that is predicted to cost, later corrected to what it did cost, and waits for its next
// turn until its debt is paid. Debts are paid in rounds, to each waiting tenant in proportion to
// its weight, and a round is as long as the first of them needs; so capacity that one tenant leaves
// goes to the others at once.
//
// A tenant that had nothing to do and owes nothing comes before those who were served in this
// round: it waits for what has been handed out, and for nobody else's turn.
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
  // What one tenant wants of the resource. Users derive from it.
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

  // The flow has something to do that could begin now, or has no more. Doing it twice is nothing.
  void SetWaiting(Flow* flow, bool waiting);
  // The flow to serve next; null if none is waiting. It stays there until it is charged.
  Flow* Next();
  // It is served something of this predicted cost: its next turn comes after the others'.
  void Charge(Flow* flow, double cost);
  // What was predicted to cost `predicted` has cost `measured`.
  void Correct(Flow* flow, double predicted, double measured);
  // Nothing is wanted and nothing is under way: nobody was kept waiting, so all debts are void.
  void ForgetDebts() { ++busy_period_; }
  // Whether the flow may be destroyed without forgetting a debt.
  bool IsSettled(const Flow& flow) const;

 private:
  double DebtAfterAbsence(const Flow& flow) const;
  void Spend(double cost);
  void LookAtWeight(Flow* flow);

  // Those that are waiting, in the order of their turns.
  std::list<Flow*> fresh_;  // came with no debt and were not served since
  std::list<Flow*> ring_;
  int64_t weight_ = 0;  // of those that are waiting
  // For each unit of weight that was waiting at the time. Those who wait are paid in rounds, which
  // are as long as a turn of each; who is absent is paid as this goes on, so that a small debt is
  // not in its way for a whole round when it comes back.
  double spent_ = 0;
  uint64_t busy_period_ = 1;
};

}  // namespace telegrad
