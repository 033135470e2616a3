// Networks as plans, written as a user of the frontend writes them, for tests and benchmarks that
// need graphs of real size: normalizations, softmax and activations are compositions of Tensor
// operations, weights are state with random first values.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/frontend/tensor/plan.h"

namespace telegrad::testing {

// ResNet-50 (He et al. 2015; the stride of a stage on its 3x3 convolution), forward, with batch
// normalization folded into a scale and a shift for each channel. Input "images" [batch, 3, 224,
// 224] f32, output "logits" [batch, 1000].
absl::StatusOr<Plan> ResNet50(int64_t batch);

// GPT-2 small (Radford et al. 2019): 12 layers of 12 heads over 768 channels, 50257 tokens. Input
// "tokens" [batch, length] i32, output "logits" [batch, length, 50257] of every position, by the
// weights of the embedding.
absl::StatusOr<Plan> Gpt2(int64_t batch, int64_t length);

// A step of its training: input "labels" [batch, length] i32 as well, output "loss" [], the weights
// moved by Adam.
absl::StatusOr<Plan> Gpt2TrainStep(int64_t batch, int64_t length);

// A step of generating a text by a decoder like GPT-2: input "token" [1, 1] i32, variable
// "position", state "layer<i>.attention.keys" and ".values" [1, heads, positions, size of a head],
// of which the step writes row `position` and reads the rows up to it; output "logits"
// [1, 1, tokens].
struct DecoderShape {
  int64_t layers = 2, heads = 2, channels = 32, tokens = 50, positions = 1024;
};
absl::StatusOr<Plan> DecodeStep(const DecoderShape& shape);

// BERT-base (Devlin et al. 2018): 12 layers of 12 heads over 768 channels, 30522 tokens. Inputs
// "tokens" and "types" [batch, length] i32 and "mask", 1 where there is a token, [batch, length]
// f32; outputs "hidden" [batch, length, 768] and "pooled" [batch, 768].
absl::StatusOr<Plan> Bert(int64_t batch, int64_t length);

// Which keys a query sees: with kCausal those up to its own position, with kWindow the last
// `window` of these; kAlibi, after Press et al. 2021, adds a slope times their distance to what
// kCausal shows.
enum class Seen { kAll, kCausal, kWindow, kAlibi };
struct AttentionShape {
  int64_t batch = 1, heads = 12, groups = 12;  // of heads, each with keys and values of its own
  int64_t queries = 128, keys = 128, channels = 64;
  Seen seen = Seen::kAll;
  int64_t window = 256;
};

// Pieces of them: of each row of "x" [rows, columns]; of "q" [batch, heads, queries, channels], "k"
// and "v" [batch, groups, keys, channels]; and a + b + c beside a + b + d.
absl::StatusOr<Plan> Softmax(int64_t rows, int64_t columns);
absl::StatusOr<Plan> LayerNorm(int64_t rows, int64_t columns);
absl::StatusOr<Plan> Attention(const AttentionShape& shape);
// The same with "dy", the gradient of its output "y", and the outputs "dq", "dk" and "dv".
absl::StatusOr<Plan> AttentionStep(const AttentionShape& shape);
absl::StatusOr<Plan> Sums(int64_t elements);

struct NamedModel {
  std::string_view name;
  absl::StatusOr<Plan> (*plan)();  // of one image, or one text of 128 tokens
};
inline constexpr NamedModel kModels[] = {
    {"resnet50", [] { return ResNet50(1); }},
    {"gpt2", [] { return Gpt2(1, 128); }},
    {"bert", [] { return Bert(1, 128); }},
    {"softmax", [] { return Softmax(1024, 768); }},
    {"layernorm", [] { return LayerNorm(1024, 768); }},
    {"attention", [] { return Attention({}); }},
    {"sums", [] { return Sums(1 << 20); }},
};

}  // namespace telegrad::testing
