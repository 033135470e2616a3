// Two reasons to reduce in blocks:
//
//   panel   each iteration of the inner loops reads the operand of the whole reduction again, and
//           the cache does not keep it: a block is the part that fits into the cache, if the
//           accumulators of these loops fit, too
//   swept   what the inner loops read does not stay in the worker's cache beside the panel, and as
//           it streams past, a large panel does not stay there either: a block is the part of the
//           panel that does
//   strips  a reduction steps over whole pages of which a tile takes a few bytes each: a block is a
//           few rows, of which a long contiguous strip each is read at a time. Where the processor
//           keeps the translations of all these pages, no strips are needed if a tile takes a part
//           of a page that is long enough to be loaded ahead, and never parts of two pages
#include "engine/lowering/block_choice.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/types/machine_costs.h"

namespace telegrad {
namespace {

constexpr double kMinBlock = 32;   // iterations that a block reduces at least
constexpr int64_t kLeastRows = 2;  // of a strip
constexpr int64_t kOperands = 2;   // registers beside a tile's accumulators

class Chooser {
 public:
  Chooser(const KernelShape& shape, const Work& work, const LoopOrder& order,
          const std::vector<int64_t>& upcast, const std::vector<int64_t>& widths, RangeSet lanes,
          const Target& target)
      : s_(shape),
        work_(work),
        order_(order),
        upcast_(upcast),
        widths_(widths),
        kept_(work.all & ~work.own),
        lanes_(lanes & kept_),
        part_(PartBytes(target)),
        target_(target),
        costs_(CostsOf(target).thread) {}

  BlockChoice Run() const {
    if (!work_.is_reduce() || lanes_ == 0 || s_.whole != 0) return {};
    for (uint32_t id : PostOrder(work_.root.src(0))) {
      if (work_.root.graph()->op(id) == Op::kReduce) return {};
    }
    const BlockChoice panel = Panel();
    return panel.folded >= 0 ? panel : Strips();
  }

 private:
  double TileOf(int r) const { return static_cast<double>(upcast_[r] * widths_[r]); }
  double Trips(int r) const { return std::ceil(static_cast<double>(s_.size[r]) / TileOf(r)); }
  int64_t Left(int r) const { return s_.size[r] / (upcast_[r] * widths_[r]); }
  double TileOf(RangeSet set) const {
    double tile = 1;
    for (; set != 0; set &= set - 1) tile *= TileOf(std::countr_zero(set));
    return tile;
  }
  // As CpuHeuristic::Fits: a remainder is computed twice.
  bool Fits(int r, double amount) const {
    const auto whole = static_cast<int64_t>(amount);
    return s_.size[r] % whole == 0 || (!s_.once && s_.size[r] > whole);
  }
  // The largest divisor of what is left of `r` that is at most `most`.
  int64_t Divisor(int r, double most) const {
    int64_t best = 0;
    const int64_t left = Left(r);
    for (int64_t n = 1; n < left && static_cast<double>(n) <= most; ++n) {
      if (left % n == 0) best = n;
    }
    return best;
  }

  BlockChoice Panel() const {
    RangeSet panel = 0;
    double bytes = 0;
    for (const MemoryAccess& a : work_.accesses) {
      if (a.store || (a.ranges & lanes_) == 0 || (a.ranges & work_.own) == 0) continue;
      panel |= a.ranges;
      bytes += s_.Iterations(a.ranges & work_.own) * TileOf(a.ranges & kept_) *
               static_cast<double>(a.bytes);
    }
    // What the panel depends on stays outside.
    BlockChoice out;
    out.outside = order_.thread >= 0 ? 1 : 0;
    for (size_t i = out.outside; i < order_.loops.size(); ++i) {
      if (Has(panel, order_.loops[i])) out.outside = i + 1;
    }
    if (out.outside >= order_.loops.size()) return {};
    double accumulators = TileOf(kept_) * static_cast<double>(ByteSize(work_.root.dtype()));
    double trips = 1;  // of the loops inside, but the first
    for (size_t i = out.outside; i < order_.loops.size(); ++i) {
      if (!Has(work_.all, order_.loops[i])) return {};
      if (i > out.outside) trips *= Trips(order_.loops[i]);
    }
    const int first = order_.loops[out.outside];
    const double most = std::floor(part_ / (accumulators * trips));
    const double wanted = Trips(first);
    if (most < 1 || std::min(most, wanted) * trips < costs_.copy_reads) return {};
    // Of the reduction, what of the panel the cache keeps.
    const bool large = bytes > PanelBytes(target_);
    double share = large ? part_ / bytes : 1;
    if (!large) {
      const auto cache = static_cast<double>(target_.cache_bytes);
      const double swept = SweptBytes(out.outside, order_.loops.size());
      double again = 1;
      for (size_t i = 0; i < out.outside; ++i) again *= Trips(order_.loops[i]);
      share = costs_.kept_in_stream * cache / bytes;
      const bool stays = share >= 1 || bytes + swept <= costs_.kept * cache;
      if (stays || most < wanted || again < costs_.copy_reads) return {};
    }
    if (most < wanted) {  // parts of the same size, as far as that goes
      out.parts = static_cast<int64_t>(std::ceil(wanted / std::ceil(wanted / most)));
      if (!Fits(first, static_cast<double>(out.parts) * TileOf(first))) return {};
    }
    int folded = -1;  // the longest of the reduced loops
    for (int i = 1; i < work_.root.num_src(); ++i) {
      const int r = s_.d.IndexOf(work_.root.src(i));
      if (folded < 0 || Left(r) > Left(folded)) folded = r;
    }
    out.amount = Divisor(folded, share * static_cast<double>(Left(folded)));
    const double block = static_cast<double>(out.amount) * s_.Iterations(work_.own & ~Bit(folded));
    if (block < kMinBlock) return {};
    out.folded = folded;
    return out;
  }

  // Of the operands without lanes, what the loops from `first` on and the reduction read.
  double SweptBytes(size_t first, size_t end) const {
    RangeSet loops = work_.own;
    for (size_t i = first; i < end; ++i) loops |= Bit(order_.loops[i]);
    double bytes = 0;
    for (const MemoryAccess& a : work_.accesses) {
      if (a.store || (a.ranges & lanes_) != 0) continue;
      bytes +=
          std::min(s_.Iterations(a.ranges & loops) * static_cast<double>(a.bytes), a.buffer_bytes);
    }
    return bytes;
  }

  BlockChoice Strips() const {
    // With few accumulators for each element that is read.
    if (work_.root.num_src() != 2 || TileOf(kept_ & ~lanes_) >= costs_.copy_reads) return {};
    const int r = std::countr_zero(lanes_), folded = s_.d.IndexOf(work_.root.src(1));
    const MemoryAccess* rows = nullptr;
    for (const MemoryAccess& a : work_.accesses) {
      if ((a.ranges & lanes_) == 0) continue;  // one element for all lanes
      if (a.store || rows != nullptr) return {};
      rows = &a;
    }
    if (rows == nullptr || rows->stride[r] != 1 || rows->stride[folded] == kIrregular) return {};
    const auto step = static_cast<double>(std::abs(rows->stride[folded]) * rows->bytes);
    const double page = costs_.page_bytes;
    if (step < page || TileOf(r) * static_cast<double>(rows->bytes) >= page) return {};
    if (order_.loops.empty() || order_.loops.back() != r || Trips(r) < 2) return {};
    int64_t upcast = upcast_[r];
    const int64_t vector = widths_[r] * rows->bytes;
    while (upcast % 2 == 0 && static_cast<double>(upcast * vector) > costs_.piece_bytes)
      upcast /= 2;
    const int64_t tile = upcast * widths_[r];
    const auto piece = static_cast<double>(tile * rows->bytes);
    const double trips = std::ceil(static_cast<double>(s_.size[r]) / static_cast<double>(tile));
    for (int loop : order_.loops) {
      if (!Has(rows->ranges, loop)) return {};  // it is read again
    }
    BlockChoice out;
    if (s_.size[folded] <= costs_.kept_pages) {
      const int64_t quarter = static_cast<int64_t>(page) / 4, whole = quarter / vector;
      const auto values = static_cast<int64_t>(TileOf(kept_ & ~lanes_)) * whole;
      if (upcast_[r] * vector >= quarter && static_cast<int64_t>(step) % quarter == 0 &&
          values + kOperands <= target_.vector_registers) {
        out.upcast = whole;
        return out;
      }
    }
    out.amount = Divisor(folded, static_cast<double>(costs_.strip_rows));
    // Each thread has one at least, but for strips of less than a page. All are of about the same
    // size: the last one is moved back, and computes again what it has in common with another.
    const double each = r == order_.thread ? trips / target_.threads : trips;
    const double most = std::ceil(std::clamp(each * piece, page, costs_.strip_bytes) / piece);
    out.parts = static_cast<int64_t>(std::ceil(trips / std::ceil(trips / most)));
    if (upcast < upcast_[r]) out.upcast = upcast;
    const bool whole = most >= trips;
    if (out.amount < kLeastRows || (whole && r == order_.thread)) return {};
    if (whole) {
      out.parts = 0;
    } else if (!Fits(r, static_cast<double>(out.parts * tile))) {
      return {};
    }
    out.outside = order_.loops.size() - 1;
    out.folded = folded;
    return out;
  }

  const KernelShape& s_;
  const Work& work_;
  const LoopOrder& order_;
  const std::vector<int64_t>& upcast_;
  const std::vector<int64_t>& widths_;
  const RangeSet kept_, lanes_;
  const double part_;
  const Target& target_;
  const ThreadCosts& costs_;
};

}  // namespace

BlockChoice ChooseBlocks(const KernelShape& shape, const Work& work, const LoopOrder& order,
                         const std::vector<int64_t>& upcast, const std::vector<int64_t>& widths,
                         RangeSet lanes, const Target& target) {
  return Chooser(shape, work, order, upcast, widths, lanes, target).Run();
}

}  // namespace telegrad
