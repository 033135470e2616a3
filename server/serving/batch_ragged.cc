// The part of a batch's run that is about ragged sizes, see ragged.h.
#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/status.h"
#include "server/serving/batcher.h"
#include "server/serving/served_model.h"

namespace telegrad {
namespace {

// Reads the bytes of a request's input in order.
class PieceReader {
 public:
  explicit PieceReader(const InferInput& input) : pieces_(input.pieces) {}
  void Read(uint8_t* to, int64_t bytes) {
    while (bytes > 0) {
      const std::span<const uint8_t> left = pieces_[piece_].subspan(at_);
      const size_t part = std::min(left.size(), static_cast<size_t>(bytes));
      if (part > 0) std::memcpy(to, left.data(), part);
      to += part;
      at_ += part;
      bytes -= static_cast<int64_t>(part);
      if (at_ < pieces_[piece_].size()) continue;
      ++piece_;
      at_ = 0;
    }
  }

 private:
  const std::vector<std::span<const uint8_t>>& pieces_;
  size_t piece_ = 0, at_ = 0;
};

}  // namespace

// The shapes of the batch's inputs behind the batch's dimension, as large as its requests need.
InputShapes Batcher::TailsOf(Batch* batch) const {
  InputShapes tails = batch->requests.front().tails;
  const std::vector<RaggedSize>& ragged = model_.config().ragged;
  batch->sizes.assign(ragged.size(), 0);
  for (size_t i = 0; i < ragged.size(); ++i) {
    int64_t& size = batch->sizes[i];
    for (const Waiting& waiting : batch->requests) size = std::max(size, waiting.sizes[i]);
    if (!batch->exact) size = PaddedSize(size);
    for (const auto& [input, axis] : ragged[i].inputs) tails[input][axis - 1] = size;
  }
  return tails;
}

// False for an input that no request has smaller than the batch.
bool Batcher::GatherRagged(const Batch& batch, size_t input) const {
  if (batch.sizes.empty()) return false;  // then an input need not have a dimension of the batch
  const Form::Io& io = batch.form->inputs[input];
  const auto shape_of = [&](const Waiting& waiting) -> const Shape& {
    return waiting.request.inputs[waiting.inputs[input]].shape;
  };
  const bool padded = std::ranges::any_of(batch.requests, [&](const Waiting& waiting) {
    return !std::ranges::equal(ShapeView(shape_of(waiting)).subspan(1),
                               ShapeView(io.shape).subspan(1));
  });
  if (!padded) return false;
  auto* to = static_cast<uint8_t*>(batch.buffers->inputs[input]->host());
  std::memset(to, 0, static_cast<size_t>(io.bytes));
  const int64_t row_bytes = io.bytes / batch.form->rows;
  for (const Waiting& waiting : batch.requests) {
    PieceReader from(waiting.request.inputs[waiting.inputs[input]]);
    Shape outer = io.shape;
    outer.front() = waiting.rows;
    ForEachRun(shape_of(waiting), outer, ByteSize(io.dtype),
               [&](int64_t offset, int64_t bytes) { from.Read(to + offset, bytes); });
    to += row_bytes * waiting.rows;
  }
  return true;
}

// Takes the padding off a request's rows of an output.
absl::Status Batcher::Cut(const Batch& batch, const Waiting& waiting, size_t output,
                          InferOutput* out) const {
  Shape box = out->shape;
  const std::vector<RaggedSize>& ragged = model_.config().ragged;
  for (size_t i = 0; i < ragged.size(); ++i) {
    for (const auto& [number, axis] : ragged[i].outputs) {
      if (number != output) continue;
      if (box[axis] != batch.sizes[i]) {
        return InvalidArgument("dimension ", axis, " of output '", out->name, "' is ", box[axis],
                               " for inputs whose '", ragged[i].name, "' is ", batch.sizes[i],
                               ", so that it is not known what of it is padding");
      }
      box[axis] = waiting.sizes[i];
    }
  }
  return CutTo(std::move(box), batch.form->outputs[output].dtype, out);
}

// The part of an output that begins where it does and has that shape, in memory of its own.
absl::Status Batcher::CutTo(Shape box, DType dtype, InferOutput* out) const {
  if (box == out->shape) return absl::OkStatus();
  struct Kept {
    Reservation paid;
    std::string bytes;
  };
  const int64_t element = ByteSize(dtype);
  auto kept = std::make_shared<Kept>();
  TG_ASSIGN_OR_RETURN(kept->paid, Reservation::Take(tenant_->accounts.shared(Quota::kHostStaging),
                                                    NumElements(box) * element));
  kept->bytes.reserve(static_cast<size_t>(NumElements(box) * element));
  ForEachRun(box, out->shape, element, [&](int64_t offset, int64_t bytes) {
    kept->bytes.append(static_cast<const char*>(out->data) + offset, static_cast<size_t>(bytes));
  });
  out->shape = std::move(box);
  out->data = kept->bytes.data();
  out->bytes = static_cast<int64_t>(kept->bytes.size());
  out->owner = std::move(kept);
  return absl::OkStatus();
}

// Takes off what the run has not used of an output whose shape it decides.
absl::Status Batcher::CutToRun(const Batch& batch, const Form::Io& io, InferOutput* out) const {
  Shape box(io.shape.size());
  const auto& memory = batch.buffers->shapes[static_cast<size_t>(io.run_shape)];
  if (memory != nullptr) std::memcpy(box.data(), memory->host(), box.size() * sizeof(box[0]));
  for (size_t i = 0; i < box.size(); ++i) {
    if (box[i] >= 0 && box[i] <= io.shape[i]) continue;
    return Internal("output '", out->name, "' of ", ToString(io.shape), " has the shape ",
                    ToString(box));
  }
  return CutTo(std::move(box), io.dtype, out);
}

}  // namespace telegrad
