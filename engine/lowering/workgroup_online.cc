// In an iteration of the loop over blocks of keys, of a thread's rows r and keys k:
//
//   score[r, k]     a sum of products, from registers or by matrix instructions
//   e[r, k]         what the maximum is taken of
//   scale[r], m[r]  m' = max(m, max over k of e[r, k]), which lanes exchange; exp2((m - m') c)
//   weight[r, k]    exp2((e[r, k] - m[r]) c)
//   l[r]            l[r] scale[r] + sum over the thread's k of weight[r, k]
//   y[r, c]         y[r, c] scale[r] + sum over all k of weight[r, k] v[k, c]
//
// Of the last sum, a thread needs weights that others have, unless a matrix instruction takes them
// as these have them: then the fragment of scores is, rounded, one of weights. After the loop lanes
// add up l.
#include "engine/lowering/workgroup_online.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <span>

#include "engine/lowering/online_terms.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/tile_layout.h"
#include "engine/lowering/workgroup_matmul.h"
#include "engine/lowering/workgroup_operands.h"
#include "engine/lowering/workgroup_rows.h"
#include "engine/types/machine_costs.h"

namespace telegrad {
namespace {

int64_t Up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

bool IsNarrow(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

constexpr int64_t kPartOfSums = 4;  // of the registers, that the sums of a block of all keys have

// How the products are computed.
enum class Products : uint8_t {
  kInstructions,  // by matrix instructions
  kStaged,        // in registers, of operands in local memory
  kDirect,        // of operands where they are
};

class TileSummer : WorkgroupRows {
 public:
  TileSummer(Rewriter& b, const Target& target, const CoupledSums& sums, Products products)
      : WorkgroupRows(b, sums.maximum.dtype(), sums.next_range),
        target_(target),
        products_(products),
        s_(sums),
        terms_(b, s_) {}

  UOp Run() {
    if (!s_.row.valid() || s_.blocks.valid()) return {};
    if (s_.sums.size() != 1 || s_.sums[0].kept.size() != 2) return {};
    keys_ = SizeOf(s_.key);
    if (!ChooseLayout() || s_.rows() % layout_.tile_rows != 0) return {};
    if (warps() * target_.warp > target_.group_threads) return {};
    MakeThreads(layout_, warps());
    PlaceFragments();
    for (; block_ >= layout_.columns; block_ /= 2) {
      if (block_ % layout_.columns != 0) return {};
      const int64_t weights = instruction_ ? 0 : BytesOf(dtype_, block_ * WeightStride());
      const int64_t others = weights + ExchangedBytes();
      const OperandPlan plan{.sums = s_,
                             .product = product_,
                             .value = value_,
                             .channel = channel(),
                             .instruction = instruction_,
                             .threads = threads_,
                             .block = block_,
                             .channels = channels(),
                             .terms = TermsAtOnce(),
                             .other_bytes = others};
      operands_ = StageOperands(b_, target_, plan, &next_range_, &next_slot_);
      if (operands_.bytes + others <= target_.local_bytes) return Sum();
    }
    return {};
  }

 private:
  const WeightedSum& sum() const { return s_.sums[0]; }
  UOp channel() const { return sum().kept[0] == sum().row ? sum().kept[1] : sum().kept[0]; }
  int64_t channels() const { return Up(SizeOf(channel()), layout_.columns); }
  // Of the scores that are computed at a time: those of an instruction, or that are written out.
  int64_t TermsAtOnce() const {
    return instruction_ ? instruction_->info().k : CostsOf(target_).group.terms;
  }
  int64_t warps() const { return s_.rows() / layout_.tile_rows; }

  // An element that is 0 where there is none, as a load that is gated: then its copy is 0 there.
  UOp WithGate(UOp value) {
    const bool zero =
        value.is(Op::kWhere) && value.src(2).is_const() && value.src(2).const_word() == 0;
    const UOp inner = zero ? value.src(1) : UOp();
    const UOp load = !zero ? UOp() : inner.is(Op::kCast) ? inner.src(0) : inner;
    if (!zero || !load.is(Op::kLoad)) return value;
    const UOp from = load.src(0);
    const UOp gate = from.num_src() == 3 ? Both(from.src(2), value.src(0)) : value.src(0);
    const UOp gated = g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {from.src(0), from.src(1), gate})});
    return inner == load ? gated : b_.Make(Op::kCast, inner.dtype(), {gated});
  }

  bool ChooseLayout() {
    if (products_ != Products::kDirect) {
      product_ = FindRowProduct(s_.scores, s_.row, s_.key);
      weighted_ = WithGate(sum().value);
      value_ = FactorLoad(weighted_);
      if (value_.valid() && DependsOn(value_, sum().row)) value_ = {};
    }
    if (products_ == Products::kInstructions) {
      const bool loads = product_ && value_.valid() && dtype_ == DType::kFloat32;
      const DType narrow = loads ? value_.dtype() : DType::kVoid;
      if (!IsNarrow(narrow) || product_->rows.dtype() != narrow ||
          product_->columns.dtype() != narrow) {
        return false;
      }
      instruction_ = TileInstructionFor(target_, narrow);
      if (!instruction_) return false;
    }
    layout_ = instruction_ ? instruction_->layout : LayoutWithoutInstruction(target_);
    block_ = CostsOf(target_).schedule.row_block / layout_.columns * layout_.columns;
    // Where sums take a good part of the registers, a block has fewer keys.
    const int64_t registers = target_.vector_registers * WarpElements(target_);
    if (kPartOfSums * OutputElements() > registers) block_ = std::max(block_ / 2, layout_.columns);
    while (block_ / 2 >= std::max(keys_, layout_.columns) && block_ / 2 % layout_.columns == 0) {
      block_ /= 2;
    }
    return true;
  }

  // Of local memory, at most, what threads tell each other through it (workgroup_reduce.h): whether
  // hidden values are finite and operands of scores bounded (shown_blocks.h), of all lanes that
  // exchange it themselves one number, and where lanes that have parts of a row do not exchange its
  // maximum and its sum, a number of each lane's rows.
  int64_t ExchangedBytes() const {
    const int64_t threads = warps() * target_.warp;
    int64_t lanes = 1;  // neighbours that have parts of a row
    size_t i = 0;
    for (; i < layout_.threads.size() && !layout_.threads[i].row; ++i) {
      lanes *= layout_.threads[i].size;
    }
    const bool row_last =
        std::ranges::all_of(std::span(layout_.threads).subspan(i), &TileDigit::row);
    const bool exchanged = row_last && std::has_single_bit(static_cast<uint64_t>(lanes));
    const int64_t numbers = 3 * threads / (target_.warp & -target_.warp);
    return Up(BytesOf(dtype_, numbers + (exchanged ? 0 : 2 * threads * layout_.rows())),
              kBufferAlign);
  }

  // Where the threads' elements of the instruction's operands are.
  void PlaceFragments() {
    if (!instruction_) return;
    const std::optional<Fragments> f =
        FragmentsFor(b_, target_.matrix, value_.dtype(), instruction_->info().n, next_range_++);
    const auto place = [&](const FragmentPlace& from) {
      const Replacements with{{f->lane.id(), {lane_, {}}}};
      FragmentPlace to = from;
      for (UOp* u : {&to.scalar_t, &to.vector_t, &to.scalar_k, &to.vector_k, &to.row}) {
        if (u->valid()) *u = Substitute(b_, *u, with);
      }
      return to;
    };
    of_rows_ = place(instruction_->turned ? f->b : f->a);
    of_columns_ = place(instruction_->turned ? f->a : f->b);
    zero_ = f->zero;
  }

  UOp OfBlock(int64_t elements) { return After(Private(elements), {operands_.blocks}); }

  // `memory` in the loop over blocks, where it has `first` in the beginning.
  UOp Carried(UOp memory, int64_t elements, UOp first) {
    const UOp each = Fresh(AxisType::kUpcast, elements);
    return After(memory, {Nest(Store(memory, each, first), {{&each, 1}}), operands_.blocks});
  }
  UOp InLoop(UOp nest) { return g_.Make(Op::kEnd, {nest, operands_.blocks}); }

  // Rows of weights that threads exchange lie side by side, with a gap that a vector is aligned by.
  int64_t WeightStride() const { return s_.rows() + WarpElements(target_); }

  UOp Sum() {
    FillOperands(b_, &operands_, &next_range_);
    StoreScores();
    UpdateMaxima();
    StoreWeights();
    AddWeights();
    instruction_ ? MultiplyFragments() : AddProducts();
    return Finish();
  }

  // The ranges of the scores at a place.
  Replacements At(const TileWalk& walk) {
    return {{s_.row.id(), {walk.row, {walk.row}}},
            {s_.key.id(), {Add(Mul(operands_.blocks, block_), walk.column), {walk.column}}}};
  }
  // Whether there is the key; invalid: there are all.
  UOp Exists(UOp column) {
    if (keys_ % block_ == 0) return {};
    return b_.Make(Op::kCmpLt, {Add(Mul(operands_.blocks, block_), column), g_.Index(keys_)});
  }

  UOp ElementOf(const Panel& panel, UOp t, UOp k) {
    const UOp at = Add(panel.tile.first, panel.AtFrom(b_, t, k));
    return Load(panel.tile.memory, at);
  }

  // A sum of so many terms is one of several that are written out.
  struct Terms {
    UOp at;
    std::vector<UOp> ranges = {};
  };
  Terms TermsOf(int64_t count) {
    Terms out{.at = g_.Index(0)};
    const int64_t most = CostsOf(target_).group.terms;
    const int64_t together = count % most == 0 ? most : 1;
    if (count > together) out.ranges.push_back(Fresh(AxisType::kReduce, count / together));
    if (count > together) out.at = Mul(out.ranges.back(), together);
    if (together > 1) {
      out.ranges.push_back(Fresh(AxisType::kUnroll, together));
      out.at = Add(out.at, out.ranges.back());
    }
    return out;
  }

  // A fragment of the panel's: `t` and `k` are where its tile begins.
  UOp Fragment(const Panel& panel, const FragmentPlace& of, UOp t, UOp k, int64_t elements) {
    FragmentPlace at = of;
    at.scalar_t = Add(at.scalar_t, t);
    at.scalar_k = Add(at.scalar_k, k);
    return ReadFragment(b_, panel, at, elements);
  }
  // c + rows * columns, whichever is first for the instruction.
  UOp Multiply(UOp rows, UOp columns, UOp c) {
    const bool turned = instruction_->turned;
    return g_.Make(Op::kMma, DType::kVoid, {turned ? columns : rows, turned ? rows : columns, c},
                   {static_cast<int64_t>(instruction_->kind), 0, 0});
  }
  int64_t RowElements() const {
    return instruction_->turned ? instruction_->info().b_size() : instruction_->info().a_size();
  }
  int64_t ColumnElements() const {
    return instruction_->turned ? instruction_->info().a_size() : instruction_->info().b_size();
  }
  // The elements of tile number `tile`.
  UOp FragmentAt(UOp tile) {
    const int64_t n = layout_.size();
    return g_.Make(Op::kAdd, {Mul(tile, n), g_.Make(Op::kIota, DType::kInt64, {}, {n})});
  }

  // The sums of products of a block, in registers.
  UOp StoreProducts() {
    const int64_t n = block_ / layout_.columns;
    const UOp tile = Fresh(AxisType::kUpcast, n);
    const UOp memory = OfBlock(n * layout_.size());
    UOp sum = zero_;
    for (int64_t k = 0; k < Up(SizeOf(product_->k), TermsAtOnce()); k += TermsAtOnce()) {
      const UOp from = g_.Index(k);
      const UOp rows = Fragment(*operands_.query, of_rows_, Mul(threads_[0], layout_.tile_rows),
                                from, RowElements());
      const UOp columns =
          Fragment(*operands_.key, of_columns_, Mul(tile, layout_.columns), from, ColumnElements());
      sum = Multiply(rows, columns, sum);
    }
    return After(memory, {Nest(Store(memory, FragmentAt(tile), sum), {{&tile, 1}})});
  }

  // What becomes of the scores' sum of products; nothing where they have none.
  void PutProduct(const TileWalk& walk, UOp products, Replacements* with) {
    if (!product_) return;
    const UOp reduce = product_->reduce;
    if (products.valid()) {
      (*with)[reduce.id()] = {Load(products, walk.at), {}};
      return;
    }
    const Terms terms = TermsOf(Up(SizeOf(product_->k), TermsAtOnce()));
    const UOp x = ElementOf(*operands_.query, walk.row, terms.at);
    const UOp y = ElementOf(*operands_.key, walk.column, terms.at);
    const UOp body = Substitute(
        b_, reduce.src(0), {{product_->rows.id(), {x, {}}}, {product_->columns.id(), {y, {}}}});
    (*with)[reduce.id()] = {Reduce(ReduceKind::kAdd, body, {terms.ranges}), {}};
  }

  void StoreScores() {
    const UOp products = instruction_ ? StoreProducts() : UOp();
    const TileWalk walk = Over(block_, AxisType::kUpcast, AxisType::kUpcast);
    Replacements with = At(walk);
    PutProduct(walk, products, &with);
    const UOp score = Substitute(b_, s_.scores, with);
    with = At(walk);
    with[s_.score.id()] = {score, {}};
    UOp element = Substitute(b_, s_.element, with);
    const UOp exists = Exists(walk.column);
    if (exists.valid()) element = b_.Make(Op::kWhere, {exists, element, terms_.Lowest()});
    const UOp memory = OfBlock(block_ / layout_.columns * layout_.size());
    elements_ = After(memory, {Nest(Store(memory, walk.at, element), {walk.rows, walk.columns})});
  }

  void UpdateMaxima() {
    const TileWalk walk = Over(block_, AxisType::kUpcast, AxisType::kUnroll);
    maxima_ = Private(layout_.rows());
    const UOp carried = Carried(maxima_, layout_.rows(), terms_.Lowest());
    const UOp old = Load(carried, walk.row_at);
    const UOp most =
        Reduce(ReduceKind::kMax, Load(elements_, walk.at), {walk.columns, column_lanes_});
    const UOp maximum = b_.Make(Op::kMax, {old, most});
    maxima_done_ = Nest(Store(carried, walk.row_at, maximum), {walk.rows});
    const UOp memory = OfBlock(layout_.rows());
    const UOp scale = terms_.Rescaling(old, maximum);
    scales_ = After(memory, {Nest(Store(memory, walk.row_at, scale), {walk.rows})});
  }

  void StoreWeights() {
    const TileWalk walk = Over(block_, AxisType::kUpcast, AxisType::kUpcast);
    const UOp maximum = Load(After(maxima_, {maxima_done_}), walk.row_at);
    const UOp weight = terms_.Exponential(Load(elements_, walk.at), terms_.Shift(maximum));
    const UOp memory = OfBlock(block_ / layout_.columns * layout_.size());
    weights_ = After(memory, {Nest(Store(memory, walk.at, weight), {walk.rows, walk.columns})});
  }

  void AddWeights() {
    const TileWalk walk = Over(block_, AxisType::kUpcast, AxisType::kUnroll);
    sums_ = Private(layout_.rows());
    const UOp carried = Carried(sums_, layout_.rows(), g_.ConstFloat(dtype_, 0.0));
    const UOp before = b_.Make(Op::kMul, {Load(carried, walk.row_at), Load(scales_, walk.row_at)});
    const UOp more = Reduce(ReduceKind::kAdd, Load(weights_, walk.at), {walk.columns});
    const UOp sum = b_.Make(Op::kAdd, {before, more});
    sums_done_ = InLoop(Nest(Store(carried, walk.row_at, sum), {walk.rows}));
  }

  int64_t OutputElements() const { return channels() / layout_.columns * layout_.size(); }

  UOp CarriedOutput() {
    output_ = Private(OutputElements());
    return Carried(output_, OutputElements(), g_.ConstFloat(dtype_, 0.0));
  }

  void MultiplyFragments() {
    const UOp carried = CarriedOutput();
    const TileWalk walk = Over(channels(), AxisType::kUpcast, AxisType::kUpcast);
    const UOp rescaled = b_.Make(Op::kMul, {Load(carried, walk.at), Load(scales_, walk.row_at)});
    const UOp scaled =
        After(output_, {Nest(Store(carried, walk.at, rescaled), {walk.rows, walk.columns})});
    const UOp tile = Fresh(AxisType::kUpcast, channels() / layout_.columns);
    UOp sum = Load(scaled, FragmentAt(tile));
    for (int64_t k = 0; k < block_; k += layout_.columns) {
      const UOp weights = b_.Make(Op::kCast, value_.dtype(),
                                  {Load(weights_, FragmentAt(g_.Index(k / layout_.columns)))});
      const UOp values = Fragment(*operands_.value, of_columns_, Mul(tile, layout_.columns),
                                  g_.Index(k), ColumnElements());
      sum = Multiply(weights, values, sum);
    }
    output_done_ = InLoop(Nest(Store(scaled, FragmentAt(tile), sum), {{&tile, 1}}));
  }

  // The weights of a block, of all threads.
  UOp ShareWeights() {
    const UOp memory =
        After(Memory(AddressSpace::kLocal, dtype_, block_ * WeightStride()), {operands_.blocks});
    const TileWalk walk = Over(block_, AxisType::kUpcast, AxisType::kUpcast);
    const UOp at = Add(Mul(walk.column, WeightStride()), walk.row);
    const UOp store = Store(memory, at, Load(weights_, walk.at));
    return After(memory, {Nest(store, {threads_, walk.columns, walk.rows})});
  }

  void AddProducts() {
    const UOp carried = CarriedOutput(), shared = ShareWeights();
    const TileWalk walk = Over(channels(), AxisType::kUpcast, AxisType::kUpcast);
    const Terms key = TermsOf(block_);
    const UOp weight = Load(shared, Add(Mul(key.at, WeightStride()), walk.row));
    UOp value;
    if (operands_.value) {
      const UOp element = ElementOf(*operands_.value, walk.column, key.at);
      value = Substitute(b_, weighted_, {{value_.id(), {element, {}}}});
    } else {
      value = Substitute(b_, sum().value,
                         {{s_.row.id(), {walk.row, {}}},
                          {sum().row.id(), {walk.row, {}}},
                          {s_.key.id(), {Add(Mul(operands_.blocks, block_), key.at), {}}},
                          {channel().id(), {walk.column, {}}}});
      const UOp exists = Exists(key.at);
      if (exists.valid()) {
        value = b_.Make(Op::kWhere, {exists, value, g_.ConstFloat(value.dtype(), 0.0)});
      }
    }
    const UOp body = b_.Make(Op::kMul, {weight, value});
    const UOp before = b_.Make(Op::kMul, {Load(carried, walk.at), Load(scales_, walk.row_at)});
    const UOp added = b_.Make(Op::kAdd, {before, Reduce(ReduceKind::kAdd, body, {key.ranges})});
    output_done_ = InLoop(Nest(Store(carried, walk.at, added), {walk.rows, walk.columns}));
  }

  // What all lanes of a row have added up.
  UOp TotalSums() {
    const UOp done = After(sums_, {sums_done_});
    const TileWalk walk = Over(layout_.columns, AxisType::kUpcast, AxisType::kUpcast);
    const UOp memory = Private(layout_.rows());
    const UOp total = Reduce(ReduceKind::kAdd, Load(done, walk.row_at), {column_lanes_});
    return After(memory, {Nest(Store(memory, walk.row_at, total), {walk.rows})});
  }

  UOp Finish() {
    totals_ = TotalSums();
    output_ = After(output_, {output_done_});
    maxima_ = After(maxima_, {InLoop(maxima_done_)});
    std::vector<UOp> roots;
    for (const UOp root : s_.roots) {
      roots.push_back(FinishRoot(root));
      if (!roots.back().valid()) return {};
    }
    return g_.Make(Op::kSink, DType::kVoid, roots);
  }

  // A root stores an element for each row, or for each row and channel.
  UOp FinishRoot(UOp root) {
    std::vector<UOp> outer, row, column;
    UOp store = root;
    for (; store.is(Op::kEnd); store = store.src(0)) {
      for (int i = 1; i < store.num_src(); ++i) {
        const UOp range = store.src(i);
        const bool shared = std::ranges::find(s_.shared, range) != s_.shared.end();
        (shared ? outer : IsRow(range, root) ? row : column).push_back(range);
      }
    }
    if (row.size() != 1 || column.size() > 1) return {};
    const bool each = column.size() == 1;
    if (each && SizeOf(column[0]) != SizeOf(channel())) return {};
    const TileWalk walk = Over(each ? channels() : layout_.columns, AxisType::kUpcast,
                               AxisType::kUpcast, AxisType::kVector);
    Replacements with{{row[0].id(), {walk.row, {}}}};
    if (each) with[column[0].id()] = {walk.column, {}};
    for (uint32_t id : PostOrder(store)) {
      const UOp load = g_.at(id);
      if (!load.is(Op::kLoad)) continue;
      const UOp memory = load.src(0).src(0), result = Result(memory, walk);
      if (result.valid()) with[id] = {result, {}};
    }
    UOp gate;
    if (each && channels() != SizeOf(channel())) {
      gate = b_.Make(Op::kCmpLt, {walk.column, g_.Index(SizeOf(channel()))});
    }
    for (size_t i = 0; !each && i < column_lanes_.size(); ++i) {  // one of them stores
      gate = Both(gate, b_.Make(Op::kCmpLt, {column_lanes_[i], g_.Index(1)}));
    }
    gate = Both(gate, IsOwn(store, walk.row));
    store = Substitute(b_, store, with);
    if (!store.valid()) return {};
    if (gate.valid()) {
      const UOp to = store.src(0);
      if (to.num_src() == 3) gate = Both(to.src(2), gate);
      store =
          g_.Make(Op::kStore, {g_.Make(Op::kIndex, {to.src(0), to.src(1), gate}), store.src(1)});
    }
    return Nest(store, {outer, threads_, walk.rows,
                        each ? std::span<const UOp>(walk.columns) : std::span<const UOp>()});
  }

  UOp Both(UOp x, UOp y) { return !x.valid() ? y : !y.valid() ? x : g_.Make(Op::kAnd, {x, y}); }

  // The last tile of rows begins at max(-n tile, n - all) times -1, where n does not divide them:
  // whether it is the first one that has the row. Invalid: no other has.
  UOp IsOwn(UOp store, UOp row) {
    for (uint32_t id : PostOrder(store.src(0))) {
      const UOp most = g_.at(id);
      for (int i = 0; most.is(Op::kMax) && i < 2; ++i) {
        const UOp back = most.src(i);
        const bool is_back = most.src(1 - i).is_const() && back.is(Op::kMul) &&
                             back.src(1).is_const() && back.src(1).const_word() == -s_.rows() &&
                             std::ranges::find(s_.shared, back.src(0)) != s_.shared.end();
        if (!is_back) continue;
        const UOp at = Add(Mul(most, -1), row);
        return b_.Make(Op::kCmpLt, {Mul(back.src(0), s_.rows()), Add(at, g_.Index(1))});
      }
    }
    return {};
  }

  // Whether the range is by which the root reads what rows have.
  bool IsRow(UOp range, UOp root) const {
    if (range == sum().row) return true;
    return std::ranges::any_of(PostOrder(root), [&](uint32_t id) {
      const UOp load = g_.at(id);
      if (!load.is(Op::kLoad)) return false;
      const UOp memory = load.src(0).src(0);
      return (memory == s_.maximum_memory || memory == s_.sum_memory) &&
             load.src(0).src(1) == range;
    });
  }

  // What a load of the memory that stands for a result becomes.
  UOp Result(UOp memory, const TileWalk& walk) {
    if (memory == s_.maximum_memory) return Load(maxima_, walk.row_at);
    const bool sums = s_.sum_memory.valid() && memory == s_.sum_memory;
    if (!sums && memory != sum().memory) return {};
    const UOp value = sums ? Load(totals_, walk.row_at) : Load(output_, walk.at);
    return terms_.Corrected(value, Load(maxima_, walk.row_at), !sums && sum().hides_rows);
  }

  const Target& target_;
  const Products products_;
  const CoupledSums& s_;
  OnlineTerms terms_;
  int64_t keys_ = 0, block_ = 0;
  std::optional<RowProduct> product_;           // of the scores
  UOp weighted_;                                // the sum's value, once its load is gated
  UOp value_;                                   // the LOAD of it; invalid: it is computed
  std::optional<TileInstruction> instruction_;  // for both products
  UOp zero_;
  FragmentPlace of_rows_, of_columns_;  // of the instruction's operands
  StagedOperands operands_;
  UOp elements_, scales_, weights_;  // of a block
  UOp maxima_, sums_, output_, totals_;
  UOp maxima_done_, sums_done_, output_done_;
};

}  // namespace

UOp SumOnlineTogether(Rewriter& b, const Target& target, const CoupledSums& sums) {
  for (const Products products : {Products::kInstructions, Products::kStaged, Products::kDirect}) {
    const UOp sink = TileSummer(b, target, sums, products).Run();
    if (sink.valid()) return sink;
  }
  return {};
}

}  // namespace telegrad
