#include "engine/schedule/winograd.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "engine/schedule/range_facts.h"
#include "engine/schedule/window_product.h"

namespace telegrad {
namespace {

constexpr int kTile = 4, kTaps = 3, kPoints = kTile + kTaps - 1;

constexpr double kInputs[kPoints][kPoints] = {  // B'
    {4, 0, -5, 0, 1, 0},  {0, -4, -4, 1, 1, 0}, {0, 4, -4, -1, 1, 0},
    {0, -2, -1, 2, 1, 0}, {0, 2, -1, -2, 1, 0}, {0, 4, 0, -5, 0, 1}};
constexpr double kResults[kTile][kPoints] = {  // A'
    {1, 1, 1, 1, 1, 0},
    {0, 1, -1, 2, -2, 0},
    {0, 1, 1, 4, 4, 0},
    {0, 1, -1, 8, -8, 1}};
constexpr double kWeights[kPoints][kTaps] = {  // G
    {1.0 / 4, 0, 0},
    {-1.0 / 6, -1.0 / 6, -1.0 / 6},
    {-1.0 / 6, 1.0 / 6, -1.0 / 6},
    {1.0 / 24, 1.0 / 12, 1.0 / 6},
    {1.0 / 24, -1.0 / 12, 1.0 / 6},
    {0, 0, 1}};

// The temporaries, as arguments.
constexpr int kTiles = ~0, kProducts = ~1;

constexpr double kWorthIt = 0.95;  // of the predicted cycles of the convolution itself

int64_t SizeOf(UOp range) { return RangeFacts::Size(range); }
int64_t TilesOf(UOp range) { return (SizeOf(range) + kTile - 1) / kTile; }

// The sum of the values with these factors, of which most are 0, 1 or -1.
UOp Combine(PartWriter& k, std::span<const double> factors, std::span<const UOp> values) {
  UOp sum;
  for (const bool subtracted : {false, true}) {
    for (size_t i = 0; i < factors.size(); ++i) {
      const double f = factors[i];
      if (f == 0 || (f == -1) != subtracted) continue;
      const UOp term =
          f == 1 || f == -1
              ? values[i]
              : k.g().Make(Op::kMul, {values[i], k.g().ConstFloat(DType::kFloat32, f)});
      sum = !sum.valid() ? term : k.g().Make(subtracted ? Op::kSub : Op::kAdd, {sum, term});
    }
  }
  return sum;
}

class Transformer {
 public:
  Transformer(const Graph& from, const WindowProduct& w, const ScheduleOptions& options)
      : from_(from), w_(w), options_(options) {
    rows_ = TilesOf(w.row);
    columns_ = TilesOf(w.column);
    tiles_ = rows_ * columns_;
    for (const UOp range : w.outer) tiles_ *= SizeOf(range);
    channels_ = SizeOf(w.channels);
    outputs_ = SizeOf(w.outputs);
  }

  // Of a tensor that is new. A weight that a device cannot keep would be transformed in each run.
  bool Fits() const {
    const int64_t most =
        options_.transformed_bytes / (kPoints * kPoints * ByteSize(DType::kFloat32));
    return tiles_ <= most / channels_ && tiles_ <= most / outputs_ && outputs_ <= most / channels_;
  }

  bool PaysOff() const {
    const auto rate = static_cast<double>(options_.multiply_adds);
    const double products = static_cast<double>(channels_) * static_cast<double>(outputs_);
    double pixels = static_cast<double>(SizeOf(w_.row) * SizeOf(w_.column));
    for (const UOp range : w_.outer) pixels *= static_cast<double>(SizeOf(range));
    const double points = kPoints * kPoints * static_cast<double>(tiles_);
    const double direct = kTaps * kTaps * pixels * products / rate;
    const ScheduleCosts& costs = options_.machine->schedule;
    const double moved = costs.transformed_input * static_cast<double>(channels_) +
                         costs.transformed_product * static_cast<double>(outputs_);
    const double transformed =
        points * (products + moved) / rate + products * costs.transformed_weight;
    return transformed < kWorthIt * direct;
  }

  absl::StatusOr<KernelParts> Run() {
    KernelParts out;
    out.temporaries = {kPoints * kPoints * PlaneOf(channels_),
                       kPoints * kPoints * PlaneOf(outputs_)};
    for (auto step :
         {&Transformer::TransformInput, &Transformer::Multiply, &Transformer::Results}) {
      TG_ASSIGN_OR_RETURN(KernelPart kernel, (this->*step)());
      out.kernels.push_back(std::move(kernel));
    }
    return out;
  }

 private:
  // Elements from a point of all tiles to the next one. A tile's points are read and written
  // together: where they would fall onto few sets of a cache, which finds a line by its place in a
  // page, they are a line further apart.
  int64_t PlaneOf(int64_t channels) const {
    const ThreadCosts& costs = options_.machine->thread;
    const int64_t elements = tiles_ * channels, bytes = ByteSize(DType::kFloat32);
    const bool crowded = (elements * bytes) % (static_cast<int64_t>(costs.page_bytes) /
                                               options_.machine->schedule.spread_places) ==
                         0;
    return elements + (crowded ? static_cast<int64_t>(costs.line_bytes) / bytes : 0);
  }

  // Loops over the tiles, and the tile's number.
  struct Tiles {
    std::vector<UOp> outer;
    UOp between, row, column, number;
  };
  // `between`, if given: a loop of that size between those over the input's outer ranges and those
  // over the tiles of an image.
  Tiles LoopOverTiles(PartWriter& k, std::optional<int64_t> between = {}) const {
    Tiles t;
    for (const UOp range : w_.outer) {
      t.outer.push_back(k.Loop(SizeOf(range)));
      t.number = t.number.valid() ? k.Add(k.Times(t.number, SizeOf(range)), t.outer.back())
                                  : t.outer.back();
    }
    if (between) t.between = k.Loop(*between);
    t.row = k.Loop(rows_);
    t.column = k.Loop(columns_);
    t.number = t.number.valid() ? k.Add(k.Times(t.number, rows_), t.row) : t.row;
    t.number = k.Add(k.Times(t.number, columns_), t.column);
    return t;
  }
  // For the pixel of the tile in row i, column j: what takes the place of the kernel's ranges, and
  // whether the pixel is one of the first `rows` and `columns`; invalid: always.
  UOp Place(PartWriter& k, const Tiles& t, int i, int j, int64_t rows, int64_t columns,
            PartWriter::Replaced* with) const {
    UOp gate;
    const auto place = [&](UOp range, UOp tile, int64_t tiles, int at, int64_t size) {
      const UOp pixel = k.Plus(k.Times(tile, kTile), at);
      (*with)[range.id()] = pixel;
      if (kTile * (tiles - 1) + at < size) return;
      const UOp inside = k.Less(pixel, size);
      gate = gate.valid() ? k.g().Make(Op::kAnd, {gate, inside}) : inside;
    };
    place(w_.row, t.row, rows_, i, rows);
    place(w_.column, t.column, columns_, j, columns);
    for (size_t r = 0; r < t.outer.size(); ++r) (*with)[w_.outer[r].id()] = t.outer[r];
    return gate;
  }

  absl::StatusOr<KernelPart> TransformInput() {
    PartWriter k(from_);
    const UOp tiles = k.Param(kTiles, kPoints * kPoints * PlaneOf(channels_));
    const Tiles t = LoopOverTiles(k);
    const UOp channel = k.Loop(channels_);
    // A pixel that no result of the kernel reads may lie outside of the input.
    std::array<std::array<UOp, kPoints>, kPoints> rows;  // by column, then by row of the tile
    for (int j = 0; j < kPoints; ++j) {
      std::array<UOp, kPoints> column;
      for (int i = 0; i < kPoints; ++i) {
        PartWriter::Replaced with{{w_.row_tap.id(), k.g().Index(0)},
                                  {w_.column_tap.id(), k.g().Index(0)},
                                  {w_.channels.id(), channel}};
        const UOp gate =
            Place(k, t, i, j, SizeOf(w_.row) + kTaps - 1, SizeOf(w_.column) + kTaps - 1, &with);
        column[static_cast<size_t>(i)] = k.Copy(w_.input, with, gate);
      }
      for (int u = 0; u < kPoints; ++u) rows[u][j] = Combine(k, kInputs[u], column);
    }
    std::vector<UOp> loops = t.outer;
    loops.insert(loops.end(), {t.row, t.column, channel});
    const UOp at = k.Add(k.Times(t.number, channels_), channel);
    for (int u = 0; u < kPoints; ++u) {
      for (int v = 0; v < kPoints; ++v) {
        const UOp index = k.Plus(at, (u * kPoints + v) * PlaneOf(channels_));
        k.Store(k.g().Make(Op::kIndex, {tiles, index}), Combine(k, kInputs[v], rows[u]), loops);
      }
    }
    return k.Finish("transforms the input of a convolution (winograd)");
  }

  absl::StatusOr<KernelPart> Multiply() {
    PartWriter k(from_);
    Graph& g = k.g();
    const int64_t points = kPoints * kPoints;
    const UOp products = k.Param(kProducts, points * PlaneOf(outputs_));
    const UOp tiles = k.Param(kTiles, points * PlaneOf(channels_));
    const UOp u = k.Loop(kPoints), v = k.Loop(kPoints);
    const UOp tile = k.Loop(tiles_), output = k.Loop(outputs_), channel = k.Reduced(channels_);
    const UOp point = k.Add(k.Times(u, kPoints), v);
    const UOp from =
        k.Add(k.Add(k.Times(point, PlaneOf(channels_)), k.Times(tile, channels_)), channel);
    // G w G': a factor that depends on the point is chosen among six.
    const auto factor = [&](UOp of, int tap) {
      UOp chosen = g.ConstFloat(DType::kFloat32, kWeights[kPoints - 1][tap]);
      for (int p = kPoints - 2; p >= 0; --p) {
        chosen = g.Make(Op::kWhere, {k.Less(of, p + 1),
                                     g.ConstFloat(DType::kFloat32, kWeights[p][tap]), chosen});
      }
      return chosen;
    };
    const auto sum = [&](UOp total, UOp value, UOp by) {
      const UOp term = g.Make(Op::kMul, {value, by});
      return total.valid() ? g.Make(Op::kAdd, {total, term}) : term;
    };
    UOp weight;
    for (int i = 0; i < kTaps; ++i) {
      UOp row;
      for (int j = 0; j < kTaps; ++j) {
        const PartWriter::Replaced with{{w_.row_tap.id(), g.Index(i)},
                                        {w_.column_tap.id(), g.Index(j)},
                                        {w_.channels.id(), channel},
                                        {w_.outputs.id(), output}};
        row = sum(row, k.Copy(w_.weight, with, {}), factor(v, j));
      }
      weight = sum(weight, row, factor(u, i));
    }
    const UOp product = g.Make(Op::kMul, {k.Load(tiles, from), weight});
    const UOp total = k.Sum(product, std::array{channel});
    const UOp to = k.Add(k.Add(k.Times(point, PlaneOf(outputs_)), k.Times(tile, outputs_)), output);
    const UOp loops[] = {u, v, tile, output};
    k.Store(g.Make(Op::kIndex, {products, to}), total, loops);
    return k.Finish("multiplies transformed tiles (winograd)");
  }

  absl::StatusOr<KernelPart> Results() {
    PartWriter k(from_);
    const UOp address = w_.store.src(0);
    k.Copy(address.src(0), {}, {});  // its slot first
    const UOp products = k.Param(kProducts, kPoints * kPoints * PlaneOf(outputs_));
    const Tiles t = LoopOverTiles(k, outputs_);  // as the convolution has them
    const UOp output = t.between;
    std::vector<UOp> loops = t.outer;
    loops.insert(loops.end(), {output, t.row, t.column});

    const UOp at = k.Add(k.Times(t.number, outputs_), output);
    std::array<std::array<UOp, kPoints>, kTile> rows;
    for (int v = 0; v < kPoints; ++v) {
      std::array<UOp, kPoints> column;
      for (int u = 0; u < kPoints; ++u) {
        column[static_cast<size_t>(u)] =
            k.Load(products, k.Plus(at, (u * kPoints + v) * PlaneOf(outputs_)));
      }
      for (int i = 0; i < kTile; ++i) rows[i][v] = Combine(k, kResults[i], column);
    }
    for (int i = 0; i < kTile; ++i) {
      for (int j = 0; j < kTile; ++j) {
        PartWriter::Replaced with{{w_.outputs.id(), output}};
        const UOp gate = Place(k, t, i, j, SizeOf(w_.row), SizeOf(w_.column), &with);
        with[w_.reduce.id()] = Combine(k, kResults[j], rows[i]);
        k.Store(k.Copy(address, with, gate), k.Copy(w_.store.src(1), with, gate), loops);
      }
    }
    return k.Finish("combines the products of a convolution (winograd)");
  }

  const Graph& from_;
  const WindowProduct& w_;
  const ScheduleOptions& options_;
  int64_t rows_ = 0, columns_ = 0, tiles_ = 0, channels_ = 0, outputs_ = 0;
};

}  // namespace

absl::StatusOr<std::optional<KernelParts>> UseWinograd(
    const FrozenGraph& kernel, const std::function<bool(int argument)>& is_weight,
    const ScheduleOptions& options, Budget* budget) {
  if (options.multiply_adds == 0) return std::nullopt;
  const std::optional<WindowProduct> window = FindWindowProduct(kernel.root());
  if (!window) return std::nullopt;
  if (!is_weight(static_cast<int>(window->weight.src(0).src(0).slot()))) return std::nullopt;
  Transformer transformer(*kernel.graph, *window, options);
  if (!transformer.Fits() || !transformer.PaysOff()) return std::nullopt;
  TG_RETURN_IF_ERROR(budget->SpendKernels(2));
  return transformer.Run();
}

}  // namespace telegrad
