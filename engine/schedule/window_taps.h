// What the views between a sum and what it sums show: where an element comes from, and at which
// taps and places it is none of a PAD's.
//
// The views become index arithmetic. A window reaches along each axis of the image alone, so the
// conditions under which an element is no padding fall into groups that each relate one axis of
// taps to one of the image. A group has few combinations of tap and place, and what holds for each
// of them is looked up instead of being proved.
#pragma once

#include <optional>
#include <vector>

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/rewrite/rewriter.h"
#include "engine/schedule/view_index.h"

namespace telegrad {

// What lies under views of which one is a PAD. The last view may be converted: a sum of narrow
// floats is legalized as one of f32, and zeros stay zeros.
struct PaddedViews {
  UOp base;
  std::vector<UOp> views;  // the last one first
  // nullopt: nothing is padded, or the views are too many.
  static std::optional<PaddedViews> Of(UOp x);
};

class WindowTaps {
 public:
  using AxisSet = uint32_t;
  static bool Has(AxisSet set, size_t axis) { return (set >> axis & 1) != 0; }

  // An axis of taps, and the one of the image along which they lie.
  struct Group {
    size_t taps = 0;
    std::optional<size_t> places;  // none: the conditions are on the taps alone
    AxisSet axes = 0;              // both
    // Taps that are no padding at some place lie from `first` on; 0: there are none.
    int64_t first = 0, count = 0;
    // The base's axes whose position depends on the group, and on nothing else; empty: they are not
    // one or two, or depend on more.
    std::vector<size_t> base;
    // What is no padding, by place and then tap; positions are along `base`.
    struct Element {
      int64_t tap, place, position[2];
    };
    std::vector<Element> elements;
  };

  // One element at most for each place: windows that do not overlap, of which window q has its taps
  // at first + q * stride and after. The base has an axis for the windows and, where each tap has
  // values of its own, one for the taps.
  struct Tiling {
    size_t row = 0;
    std::optional<size_t> tap;
    int64_t first = 0, windows = 0, stride = 0, taps = 0;
  };
  // Of a group with places, as the next one.
  std::optional<Tiling> TilingOf(const Group& group) const;

  // A place sees the row at place + k * direction + offset for the k-th tap, k from 0 to count - 1.
  // Where the base has an axis of taps of more than one, its position along it is k + first_tap.
  struct Sliding {
    size_t row = 0;
    std::optional<size_t> tap;
    int64_t direction = 1, offset = 0, count = 0, first_tap = 0;
  };
  std::optional<Sliding> SlidingOf(const Group& group) const;

  // For the views between `sum`, a REDUCE, and their base. nullopt: they show nothing but padding,
  // or no padding at all.
  static absl::StatusOr<std::optional<WindowTaps>> Of(UOp sum, const PaddedViews& views,
                                                      Budget* budget);

  const std::vector<Group>& groups() const { return groups_; }
  AxisSet folded() const { return folded_; }  // by the sum
  const Shape& dims() const { return dims_; }
  // For each axis of what is summed, the base's axis that it shows as it is, if there is one.
  // nullopt where the groups and such axes do not tell everything.
  std::optional<std::vector<std::optional<size_t>>> PlainAxes() const;

 private:
  WindowTaps(UOp sum, ShapeView base);

  bool FindIndices(const PaddedViews& views, Rewriter& b);
  std::optional<Group> FindGroup(size_t taps) const;
  absl::Status LookUp(Group* group, Budget* budget) const;
  void Compute(const std::vector<uint32_t>& cone, size_t tap_axis, int64_t tap, int64_t place,
               std::vector<int64_t>* words) const;
  AxisSet AxesOf(UOp u) const { return axes_[u.id()]; }
  std::optional<Tiling> Tiles(const Group& group, size_t row) const;
  std::optional<Sliding> Slides(const Group& group, size_t row) const;

  std::unique_ptr<Graph> graph_ = std::make_unique<Graph>();  // of indices
  Shape dims_, base_dims_;
  AxisSet folded_ = 0;
  Indices ranges_, index_;  // by axis of what is summed, and of the base
  std::vector<UOp> conditions_;
  std::vector<AxisSet> axes_;  // by node
  std::vector<Group> groups_;
};

}  // namespace telegrad
