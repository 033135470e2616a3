// Quantized tensors of GGUF files as graphs: the content lies on the device as it lies in the file,
// and shifts, masks and bitcasts make floats of it where they are used.
#pragma once

#include "engine/frontend/io/gguf_types.h"
#include "engine/frontend/io/tensor_file.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/tensor.h"

namespace telegrad {

// The f32 values, of `shape`, of quantized blocks: `bytes` is u8 [the blocks' bytes]. The same
// values, to the bit, as ggml's dequantize_row functions (ggml-quants.c) give without contraction.
Tensor Dequantize(GgufType type, const Tensor& bytes, const Shape& shape);

// A tensor of a file as one of the builder's: a state slot with the entry's name, for
// RemoteState::Preset to fill. f32 if it is quantized.
Tensor StateFromFile(Builder* builder, const TensorEntry& entry);

}  // namespace telegrad
