// Two walks give each node the earliest stage that can compute it and the latest that must. Those
// intervals that matter, of what is sent and what is stored, are then stabbed with as few points
// for each device as possible: the parts. A last walk, backwards, puts each node into the earliest
// part that needs it.
#include "engine/schedule/partition_stages.h"

#include <algorithm>
#include <limits>

#include "engine/schedule/piece.h"

namespace telegrad {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

}  // namespace

PartStages::PartStages(UOp sink)
    : g_(*sink.graph()),
      order_(PostOrder(sink)),
      base_(g_),
      offset_(g_, 0),
      sent_(g_),
      sent_by_part_(g_, false),
      version_(g_, 0),
      earliest_(g_, 0),
      latest_(g_, kNever),
      home_(g_, kNever),
      ready_(g_, 0),
      read_until_(g_, 0) {}

absl::Status PartStages::Assign(Budget* budget) {
  constexpr int kWalks = 8;
  int64_t edges = 0;
  for (const uint32_t id : order_) edges += static_cast<int64_t>(g_.src(id).size()) + 1;
  TG_RETURN_IF_ERROR(budget->SpendSteps(kWalks * edges));
  FindViews();
  FindStores();
  FindSent();
  FindEarliest();
  FindLatest();
  ChoosePoints();
  TG_RETURN_IF_ERROR(budget->CheckTime());
  ChooseHomes();
  FindReady();
  return absl::OkStatus();
}

const std::vector<uint32_t>& PartStages::StoresTo(uint32_t memory) const {
  const auto it = stores_.find(ParamOf(memory));
  return it == stores_.end() ? no_stores_ : it->second;
}

void PartStages::FindViews() {
  for (const uint32_t id : order_) {
    base_[id] = id;
    if (!Is(g_.op(id), kMovement)) continue;
    const uint32_t source = g_.src(id)[0];
    base_[id] = base_[source];
    const int64_t offset = PieceOffset(g_.at(id));
    offset_[id] = offset < 0 || offset_[source] < 0 ? -1 : offset_[source] + offset;
  }
}

void PartStages::FindStores() {
  for (const uint32_t id : order_) {
    if (g_.op(id) == Op::kStore) {
      std::vector<uint32_t>& stores = stores_[ParamOf(base_[g_.src(id)[0]])];
      stores.push_back(id);
      version_[id] = stores.size();
    } else if (g_.op(id) == Op::kAfter) {
      for (const uint32_t store : g_.src(id).subspan(1)) {
        version_[id] = std::max<size_t>(version_[id], version_[store]);
      }
    }
  }
}

// A piece of memory is sent from where it lies. So is a piece of work, if that will lie somewhere
// for another use; of work that only this COPY uses, no more is made than is sent.
void PartStages::FindSent() {
  NodeMap<int> uses(g_, 0);
  for (const uint32_t id : order_) {
    if (Is(g_.op(id), kMovement) && DeviceOf(id) >= 0) continue;
    for (const uint32_t s : g_.src(id)) ++uses[base_[s]];
  }
  for (const uint32_t id : order_) {
    if (g_.op(id) != Op::kCopy) continue;
    const uint32_t value = g_.src(id)[0], base = base_[value];
    const bool lies = offset_[value] >= 0 && (!IsWork(base) || uses[base] > 1 || value == base);
    sent_[id] = lies ? Sent{base, offset_[value]} : Sent{value, 0};
    const uint32_t node = sent_[id].node;
    sent_by_part_[node] = IsWork(node) || Is(g_.op(node), kMovement);
  }
}

void PartStages::FindEarliest() {
  for (const uint32_t id : order_) {
    int64_t& stage = earliest_[id];
    if (g_.op(id) == Op::kCopy) {
      const uint32_t node = sent_[id].node;
      const bool at_once = g_.op(node) == Op::kParam || g_.op(node) == Op::kCopy;
      stage = earliest_[node] + (at_once ? 0 : 1);
      if (Is(g_.op(node), kMovement)) ReadAt(base_[node], earliest_[node]);
      continue;
    }
    for (const uint32_t s : g_.src(id)) stage = std::max<int64_t>(stage, earliest_[s]);
    if (!IsWork(id)) continue;
    for (const uint32_t s : g_.src(id)) {
      const bool target = g_.op(id) == Op::kStore && s == g_.src(id)[0];
      if (!target) ReadAt(base_[s], stage);
    }
  }
}

void PartStages::FindLatest() {
  int64_t last = 0;
  for (const uint32_t id : order_) last = std::max<int64_t>(last, earliest_[id]);
  for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
    const uint32_t id = *it;
    if (g_.op(id) == Op::kCopy) {
      const uint32_t node = sent_[id].node;
      if (g_.op(node) == Op::kParam || g_.op(node) == Op::kCopy) continue;
      latest_[node] = std::min<int64_t>(latest_[node], earliest_[id] - 1);
      continue;
    }
    if (latest_[id] == kNever) latest_[id] = last;
    for (const uint32_t s : g_.src(id)) latest_[s] = std::min<int64_t>(latest_[s], latest_[id]);
  }
}

// As few stages as possible such that each interval has one: the last of the interval that ends
// first, then on with those that do not have it.
void PartStages::ChoosePoints() {
  struct Interval {
    int64_t latest, earliest, device;
    auto operator<=>(const Interval&) const = default;
  };
  std::vector<Interval> intervals;
  for (const uint32_t id : order_) {
    if (g_.op(id) != Op::kStore && !sent_by_part_[id]) continue;
    intervals.push_back({latest_[id], earliest_[id], DeviceOf(id)});
  }
  std::ranges::sort(intervals);
  for (const Interval& i : intervals) {
    if (i.device >= static_cast<int64_t>(points_.size())) points_.resize(i.device + 1);
    std::vector<int64_t>& points = points_[i.device];
    if (points.empty() || points.back() < i.earliest) points.push_back(i.latest);
  }
}

int64_t PartStages::FirstPoint(uint32_t id, int64_t from) const {
  const std::vector<int64_t>& points = points_[DeviceOf(id)];
  const auto it = std::ranges::lower_bound(points, from);
  return it == points.end() ? kNever : *it;
}

// Not before what reads the memory as it is, where there is a choice: then nothing has to be saved.
int64_t PartStages::PreferredStage(uint32_t store) const {
  int64_t stage = earliest_.at(store);
  const uint32_t target = base_.at(g_.src(store)[0]);
  const uint32_t param = ParamOf(target);
  for (const uint32_t memory : {param, target}) {
    if (version_.at(memory) + 1 == version_.at(store)) {
      stage = std::max<int64_t>(stage, read_until_.at(memory));
    }
  }
  return stage;
}

void PartStages::ChooseHomes() {
  for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
    const uint32_t id = *it;
    int64_t& home = home_[id];
    if (g_.op(id) == Op::kStore) {
      int64_t stage = FirstPoint(id, PreferredStage(id));
      if (stage > latest_[id]) stage = FirstPoint(id, earliest_[id]);
      home = std::min(home, stage);
    } else if (sent_by_part_[id]) {
      home = std::min(home, FirstPoint(id, earliest_[id]));
    }
    if (home == kNever) {
      home = kNoStage;
      continue;
    }
    if (g_.op(id) == Op::kCopy) continue;
    for (const uint32_t s : g_.src(id)) home_[s] = std::min<int64_t>(home_[s], home);
  }
}

void PartStages::FindReady() {
  for (const uint32_t id : order_) {
    if (g_.op(id) != Op::kCopy) continue;
    const uint32_t node = sent_[id].node;
    const Op op = g_.op(node);
    const bool slot = op == Op::kParam || op == Op::kAfter;
    ready_[id] = op == Op::kCopy ? ready_[node] : (slot ? WrittenAt(node) : home_[node]) + 1;
  }
}

}  // namespace telegrad
