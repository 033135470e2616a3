// RNN, LSTM and GRU, unrolled. A step whose position is beyond the length of its sequence keeps the
// state and gives 0. Where each run decides how many steps or sequences there are, as many are
// computed as there may be, so that the steps are the same kernels, and the rest is cut off.
#include <algorithm>
#include <array>

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/onnx/step_rows.h"
#include "engine/frontend/tensor/dim_math.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kMaxSteps = 4096;

struct Activation {
  std::string name;  // in lower case
  double alpha = 0, beta = 0;
};

Tensor Activate(const Activation& f, const Tensor& x) {
  if (f.name == "sigmoid") return x.Sigmoid();
  if (f.name == "tanh") return x.Tanh();
  if (f.name == "relu") return x.Relu();
  if (f.name == "affine") return x * f.alpha + f.beta;
  if (f.name == "leakyrelu") return x.LeakyRelu(f.alpha);
  if (f.name == "thresholdedrelu") return x.Ge(f.alpha).Where(x, 0.0);
  if (f.name == "scaledtanh") return (x * f.beta).Tanh() * f.alpha;
  if (f.name == "hardsigmoid") return (x * f.alpha + f.beta).Maximum(0).Minimum(1);
  if (f.name == "elu") return x.Elu(f.alpha);
  if (f.name == "softsign") return x.Softsign();
  return x.Softplus();
}

struct ActivationDefaults {
  std::string_view name;
  double alpha, beta;
};
constexpr ActivationDefaults kActivations[] = {
    {"sigmoid", 0, 0},      {"tanh", 0, 0},
    {"relu", 0, 0},         {"affine", 1, 0},
    {"leakyrelu", 0.01, 0}, {"thresholdedrelu", 1, 0},
    {"scaledtanh", 1, 1},   {"hardsigmoid", 0.2, 0.5},
    {"elu", 1, 0},          {"softsign", 0, 0},
    {"softplus", 0, 0},
};

// What x is once it was quantized to u8 by its own range and back.
Tensor FewValues(const Tensor& x) {
  const Tensor low = x.Min().Minimum(0), range = (x.Max().Maximum(0) - low) / 255;
  const Tensor scale = range.Eq(0).Where(1, range);
  const Tensor zero = RoundedWithin(0 - low / scale, 0, 255);
  const Tensor whole = (RoundedWithin(x / scale) + zero).Maximum(0).Minimum(255);
  return (whole - zero) * scale;
}

// Input `i` [directions, inputs, gates * hidden] of 8 bits, whose scale and zero point are the
// inputs from `at` on, one for each direction or column: floats as the weights of LSTM lie.
absl::StatusOr<Tensor> DequantizedWeights(NodeContext& c, int i, int at) {
  TG_ASSIGN_OR_RETURN(const Tensor w, c.Input(i));
  TG_ASSIGN_OR_RETURN(const Tensor scale, c.FloatInput(at));
  TG_ASSIGN_OR_RETURN(const Tensor zero, c.Input(at + 1));
  if (w.rank() != 3 || w.dim(0) == 0) {
    return InvalidArgument("input ", i, " has shape ", ToString(w.shape()));
  }
  const auto placed = [&](const Tensor& t) { return t.Reshape({w.dim(0), 1, -1}); };
  const Tensor whole = w.Cast(DType::kInt32) - placed(zero.Cast(DType::kInt32));
  return (whole.Cast(DType::kFloat32) * placed(scale)).Transpose();
}

// What the three have in common.
struct Recurrence {
  int64_t gates = 1;  // of W, R and B
  int64_t hidden = 0, directions = 1, steps = 0, batch = 0;
  Dim run_steps = 0, run_batch = 0;  // of these, as many as the run says
  bool reverse = false, batch_first = false;
  double clip = 0;
  std::vector<Activation> activations;  // all of the first direction, then of the second
  Tensor x;                             // [steps, batch, inputs]
  Tensor lengths;                       // [batch, 1], or invalid
  Tensor w, r, b;                       // b may be invalid
  DType dtype = DType::kVoid;           // of the results; computed in at least f32
  bool quantized = false;               // inputs and states take values that 8 bits have

  Tensor Rounded(const Tensor& t) const { return quantized ? FewValues(t) : t; }
};

absl::Status ReadActivations(NodeContext& c, const std::vector<std::string_view>& otherwise,
                             Recurrence* out) {
  TG_ASSIGN_OR_RETURN(std::vector<std::string_view> names, c.Strings("activations"));
  TG_ASSIGN_OR_RETURN(const std::vector<float> alphas, c.Floats("activation_alpha", {}));
  TG_ASSIGN_OR_RETURN(const std::vector<float> betas, c.Floats("activation_beta", {}));
  const size_t wanted = otherwise.size() * static_cast<size_t>(out->directions);
  while (names.size() < wanted && names.size() % otherwise.size() == 0) {
    names.insert(names.end(), otherwise.begin(), otherwise.end());
  }
  if (names.size() != wanted) {
    return InvalidArgument(names.size(), " activations, expected ", wanted);
  }
  // The lists hold numbers for those functions that have some, in order.
  size_t alpha = 0, beta = 0;
  for (const std::string_view name : names) {
    std::string lower(name);
    std::ranges::transform(lower, lower.begin(),
                           [](char a) { return a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a; });
    const auto* row = std::ranges::find(kActivations, lower, &ActivationDefaults::name);
    if (row == std::end(kActivations)) return InvalidArgument("the activation '", name, "'");
    Activation f{lower, row->alpha, row->beta};
    const bool has_beta = lower == "affine" || lower == "scaledtanh" || lower == "hardsigmoid";
    const bool has_alpha = has_beta || row->alpha != 0;
    if (has_alpha && alpha < alphas.size()) f.alpha = alphas[alpha++];
    if (has_beta && beta < betas.size()) f.beta = betas[beta++];
    out->activations.push_back(std::move(f));
  }
  return absl::OkStatus();
}

absl::StatusOr<Recurrence> ReadRecurrence(NodeContext& c, int64_t gates,
                                          const std::vector<std::string_view>& activations,
                                          bool quantized = false) {
  Recurrence out;
  out.gates = gates;
  out.quantized = quantized;
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Tensor w, quantized ? DequantizedWeights(c, 1, 8) : c.FloatInput(1));
  TG_ASSIGN_OR_RETURN(const Tensor r, quantized ? DequantizedWeights(c, 2, 10) : c.FloatInput(2));
  if (x.rank() != 3 || w.rank() != 3 || r.rank() != 3) {
    return InvalidArgument("X, W and R have shapes ", ToString(x.shape()), ", ",
                           ToString(w.shape()), " and ", ToString(r.shape()),
                           ", expected three axes each");
  }
  const DType wide = ComposedType(x.dtype());
  out.dtype = x.dtype();
  TG_ASSIGN_OR_RETURN(const std::string_view direction, c.String("direction", "forward"));
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional") {
    return InvalidArgument("'direction' is '", direction, "'");
  }
  out.directions = direction == "bidirectional" ? 2 : 1;
  out.reverse = direction == "reverse";
  out.hidden = r.dim(2);
  TG_ASSIGN_OR_RETURN(const int64_t declared, c.Int("hidden_size", out.hidden));
  const bool fits = w.dim(0) == out.directions && r.dim(0) == out.directions &&
                    w.dim(1) == gates * out.hidden && r.dim(1) == w.dim(1) &&
                    w.dim(2) == x.dim(2) && declared == out.hidden;
  if (!fits) {
    return InvalidArgument("W and R have shapes ", ToString(w.shape()), " and ",
                           ToString(r.shape()), " for ", x.dim(2), " inputs, 'hidden_size' ",
                           declared, " and ", out.directions, " directions");
  }
  TG_ASSIGN_OR_RETURN(const int64_t layout, c.Int("layout", 0));
  if (c.opset() < 7) c.Ignore("output_sequence");  // results that are not named are not made
  out.batch_first = layout != 0;
  const Tensor steps_first = (out.batch_first ? x.Permute({1, 0, 2}) : x).Cast(wide);
  out.x = WithBounds(steps_first);
  out.steps = out.x.dim(0);
  out.batch = out.x.dim(1);
  out.run_steps = steps_first.dims()[0];
  out.run_batch = steps_first.dims()[1];
  if (out.steps < 1 || out.steps > kMaxSteps) {
    return Unimplemented("sequences of ", out.steps, " steps; supported are 1 to ", kMaxSteps);
  }
  out.w = w.Cast(wide);
  out.r = r.Cast(wide);
  if (c.HasInput(3)) {
    TG_ASSIGN_OR_RETURN(out.b, c.FloatInput(3));
    if (out.b.rank() != 2 || out.b.dim(1) != 2 * gates * out.hidden) {
      return InvalidArgument("B has shape ", ToString(out.b.shape()));
    }
    out.b = out.b.Cast(wide);
  }
  if (c.HasInput(4)) {
    TG_ASSIGN_OR_RETURN(const Tensor lengths, c.Input(4));
    if (lengths.size() != out.batch) return InvalidArgument(lengths.size(), " sequence lengths");
    out.lengths = WithBounds(lengths.Cast(DType::kInt32)).Reshape({out.batch, 1});
  } else if (!out.run_steps.is_static()) {
    out.lengths = AsTensor(&c.builder(), out.run_steps).Cast(DType::kInt32).Reshape({1, 1});
  }
  if (c.HasAttribute("clip")) {
    TG_ASSIGN_OR_RETURN(const float clip, c.Float("clip", 0));
    out.clip = clip;
  }
  TG_RETURN_IF_ERROR(ReadActivations(c, activations, &out));
  return out;
}

// Input `i` for one direction as [batch, hidden], or zeros.
absl::StatusOr<Tensor> InitialState(NodeContext& c, const Recurrence& n, int i, int64_t d) {
  if (!c.HasInput(i)) return c.builder().Zeros({n.batch, n.hidden}, n.x.dtype());
  TG_ASSIGN_OR_RETURN(Tensor state, c.FloatInput(i));
  if (n.batch_first && state.rank() == 3) state = state.Permute({1, 0, 2});
  if (state.rank() != 3 || state.dim(0) != n.directions) {
    return InvalidArgument("input ", i, " has shape ", ToString(state.shape()));
  }
  return WithBounds(state.Slice(0, d, d + 1).Squeeze(0).Cast(n.x.dtype()));
}

// What one direction does at each step.
struct Cell {
  Tensor inputs;  // [steps, batch, gates * hidden]: X W' and the bias of W
  Tensor r;       // [hidden, gates * hidden]
  Tensor bias;    // [gates * hidden] of R, or invalid
  std::span<const Activation> f;
};

Cell CellOf(const Recurrence& n, int64_t d) {
  const auto part = [&](const Tensor& t) { return t.Slice(0, d, d + 1).Squeeze(0); };
  Cell out;
  const int64_t size = n.gates * n.hidden;
  out.inputs = n.Rounded(n.x).MatMul(part(n.w).Transpose());
  out.r = part(n.r).Transpose();
  if (n.b.valid()) {
    out.inputs = out.inputs + part(n.b).Slice(0, 0, size);
    out.bias = part(n.b).Slice(0, size, 2 * size);
  }
  const size_t each = n.activations.size() / static_cast<size_t>(n.directions);
  out.f = std::span(n.activations).subspan(static_cast<size_t>(d) * each, each);
  return out;
}

Tensor Clipped(const Recurrence& n, const Tensor& x) {
  return n.clip > 0 ? x.Maximum(-n.clip).Minimum(n.clip) : x;
}

Tensor Gate(const Recurrence& n, const Tensor& x, int64_t i) {
  return x.Slice(-1, i * n.hidden, (i + 1) * n.hidden);
}

struct StepState {
  Tensor h, c;  // c of an LSTM only
};

// The results of one direction: [steps, batch, hidden] and the last state.
struct Unrolled {
  Tensor y;
  StepState last;
};

// step(input [batch, gates * hidden], state) -> state, for every step of the direction.
template <typename F>
Unrolled Unroll(const Recurrence& n, const Cell& cell, bool backwards, StepState state, F step) {
  std::vector<Tensor> outputs(static_cast<size_t>(n.steps));
  const StepRows inputs(cell.inputs, 0);
  Tensor there;  // [steps, batch, 1]
  if (n.lengths.valid()) {
    const Tensor number = n.x.builder()->Iota(DType::kInt32, n.steps);
    there = number.Reshape({n.steps, 1, 1}).Lt(n.lengths);
  }
  const StepRows there_rows(there, 0);
  for (int64_t i = 0; i < n.steps; ++i) {
    const int64_t t = backwards ? n.steps - 1 - i : i;
    StepState next = step(inputs.At(t), state);
    if (there.valid()) {
      const Tensor now = there_rows.At(t);
      next.h = now.Where(next.h, state.h);
      if (next.c.valid()) next.c = now.Where(next.c, state.c);
    }
    state.h = next.h.Contiguous();
    if (next.c.valid()) state.c = next.c.Contiguous();
    outputs[t] = state.h;
  }
  const Tensor all = StackSteps(outputs, 0);
  return {there.valid() ? there.Where(all, 0.0) : all, state};
}

// Y, Y_h and for an LSTM Y_c.
absl::Status OutputSequence(NodeContext& c, const Recurrence& n, std::span<const Unrolled> parts) {
  std::vector<Tensor> y, h, cells;
  for (const Unrolled& part : parts) {
    y.push_back(part.y.Narrow(0, 0, n.run_steps).Narrow(1, 0, n.run_batch));
    h.push_back(part.last.h.Narrow(0, 0, n.run_batch));
    if (part.last.c.valid()) cells.push_back(part.last.c.Narrow(0, 0, n.run_batch));
  }
  const int64_t state_axis = n.batch_first ? 1 : 0;
  Tensor all = Stack(y, 1);
  if (n.batch_first) all = all.Permute({2, 0, 1, 3});
  TG_RETURN_IF_ERROR(c.Output(all.Cast(n.dtype)));
  TG_RETURN_IF_ERROR(c.Output(Stack(h, state_axis).Cast(n.dtype)));
  return cells.empty() ? absl::OkStatus() : c.Output(Stack(cells, state_axis).Cast(n.dtype));
}

}  // namespace

absl::Status RnnOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Recurrence n, ReadRecurrence(c, 1, {"Tanh"}));
  std::vector<Unrolled> parts;
  for (int64_t d = 0; d < n.directions; ++d) {
    const Cell cell = CellOf(n, d);
    TG_ASSIGN_OR_RETURN(const Tensor h, InitialState(c, n, 5, d));
    parts.push_back(
        Unroll(n, cell, n.reverse || d == 1, {h, {}}, [&](const Tensor& x, const StepState& s) {
          Tensor sum = x + s.h.MatMul(cell.r);
          if (cell.bias.valid()) sum = sum + cell.bias;
          return StepState{Activate(cell.f[0], Clipped(n, sum)), {}};
        }));
  }
  return OutputSequence(c, n, parts);
}

// Gates in the order update, reset, hidden. With `linear_before_reset` the reset gate scales the
// product with R, else the state in it.
absl::Status GruOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Recurrence n, ReadRecurrence(c, 3, {"Sigmoid", "Tanh"}));
  TG_ASSIGN_OR_RETURN(const int64_t linear, c.Int("linear_before_reset", 0));
  std::vector<Unrolled> parts;
  for (int64_t d = 0; d < n.directions; ++d) {
    const Cell cell = CellOf(n, d);
    TG_ASSIGN_OR_RETURN(const Tensor h, InitialState(c, n, 5, d));
    const auto of_r = [&](const Tensor& state, int64_t gate) {
      const Tensor sum = state.MatMul(Gate(n, cell.r, gate));
      return cell.bias.valid() ? sum + Gate(n, cell.bias, gate) : sum;
    };
    const auto step = [&](const Tensor& x, const StepState& s) {
      const Tensor z = Activate(cell.f[0], Clipped(n, Gate(n, x, 0) + of_r(s.h, 0)));
      const Tensor r = Activate(cell.f[0], Clipped(n, Gate(n, x, 1) + of_r(s.h, 1)));
      const Tensor product = linear != 0 ? r * of_r(s.h, 2) : of_r(r * s.h, 2);
      const Tensor hidden = Activate(cell.f[1], Clipped(n, Gate(n, x, 2) + product));
      return StepState{(1 - z) * hidden + z * s.h, {}};
    };
    parts.push_back(Unroll(n, cell, n.reverse || d == 1, {h, {}}, step));
  }
  return OutputSequence(c, n, parts);
}

namespace {

// Gates in the order input, output, forget, cell; peepholes in the order input, output, forget.
absl::Status Lstm(NodeContext& c, bool quantized) {
  TG_ASSIGN_OR_RETURN(const Recurrence n,
                      ReadRecurrence(c, 4, {"Sigmoid", "Tanh", "Tanh"}, quantized));
  TG_ASSIGN_OR_RETURN(const int64_t coupled, c.Int("input_forget", 0));
  Tensor peepholes;
  if (c.HasInput(7)) {
    TG_ASSIGN_OR_RETURN(peepholes, c.FloatInput(7));
    if (peepholes.rank() != 2 || peepholes.dim(1) != 3 * n.hidden) {
      return InvalidArgument("P has shape ", ToString(peepholes.shape()));
    }
    peepholes = peepholes.Cast(n.x.dtype());
  }
  std::vector<Unrolled> parts;
  for (int64_t d = 0; d < n.directions; ++d) {
    const Cell cell = CellOf(n, d);
    TG_ASSIGN_OR_RETURN(const Tensor h, InitialState(c, n, 5, d));
    TG_ASSIGN_OR_RETURN(const Tensor first, InitialState(c, n, 6, d));
    const auto peep = [&](const Tensor& sum, const Tensor& state, int64_t i) {
      if (!peepholes.valid()) return sum;
      return sum + Gate(n, peepholes.Slice(0, d, d + 1), i) * state;
    };
    const auto step = [&](const Tensor& x, const StepState& s) {
      Tensor sum = x + n.Rounded(s.h).MatMul(cell.r);
      if (cell.bias.valid()) sum = sum + cell.bias;
      const Tensor i = Activate(cell.f[0], Clipped(n, peep(Gate(n, sum, 0), s.c, 0)));
      const Tensor f =
          coupled != 0 ? 1 - i : Activate(cell.f[0], Clipped(n, peep(Gate(n, sum, 2), s.c, 2)));
      const Tensor g = Activate(cell.f[1], Clipped(n, Gate(n, sum, 3)));
      const Tensor next = f * s.c + i * g;
      const Tensor o = Activate(cell.f[0], Clipped(n, peep(Gate(n, sum, 1), next, 1)));
      return StepState{o * Activate(cell.f[2], next), next};
    };
    parts.push_back(Unroll(n, cell, n.reverse || d == 1, {h, first}, step));
  }
  return OutputSequence(c, n, parts);
}

}  // namespace

absl::Status LstmOp(NodeContext& c) { return Lstm(c, false); }
absl::Status DynamicQuantizeLstmOp(NodeContext& c) { return Lstm(c, true); }

}  // namespace telegrad::onnx
