// A character-level GPT: trains on a text, then generates one.
//
//   char_gpt --text tinyshakespeare.txt.zst --steps 500
//
// Two plans share the weights by their names. The training plan takes a batch of texts, one
// character longer than the model's length, and does one step of Adam. The writing plan takes one
// character and its position. Caches on the device hold the keys and values of all earlier
// positions; the writing plan stores the new ones there in place.
#include <zstd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "client/examples/example.h"
#include "engine/base/files.h"
#include "engine/frontend/autograd/gradient.h"
#include "engine/frontend/nn/nn.h"
#include "engine/frontend/nn/optim.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/host_random.h"

namespace telegrad::examples {
namespace {

constexpr int64_t kMaxTextBytes = 256 << 20;

struct Config {
  int64_t layers, heads, width, length, vocabulary;
  uint64_t seed;
  nn::Options Layer() const { return {.seed = seed}; }
};

// Queries, keys and values: [..., tokens, width] -> three times [..., heads, tokens, width /
// heads].
std::array<Tensor, 3> Project(Builder* b, const Config& c, const std::string& name,
                              const Tensor& x) {
  const Tensor all = nn::Linear(b, name + ".qkv", c.width, 3 * c.width, c.Layer())(x);
  std::array<Tensor, 3> out;
  for (int64_t i = 0; i < 3; ++i) {
    const Tensor part = all.Slice(-1, i * c.width, (i + 1) * c.width);
    const Tensor heads = part.Reshape({x.dim(0), x.dim(1), c.heads, c.width / c.heads});
    out[static_cast<size_t>(i)] = heads.Permute({0, 2, 1, 3});
  }
  return out;
}

Tensor Attend(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& may_see) {
  const Tensor scores = q.MatMul(k.Transpose()) / std::sqrt(static_cast<double>(q.dim(-1)));
  const Tensor heads = may_see.Where(scores, -1e9).Softmax(-1).MatMul(v);
  return heads.Permute({0, 2, 1, 3}).Reshape({q.dim(0), q.dim(2), q.dim(1) * q.dim(3)});
}

// The layers, given how one attends: tokens [batch, n] i32, positions' vectors [n, width] -> logits
// [batch, n, vocabulary].
Tensor Logits(Builder* b, const Config& c, const Tensor& tokens, const Tensor& position,
              const std::function<Tensor(const std::string&, const Tensor&)>& attention) {
  const auto table = [&](const char* name, int64_t rows) {
    return b->Trainable(DType::kFloat32, {rows, c.width}, name,
                        Init::Uniform(-0.05, 0.05, NamedSeed(c.seed, name)));
  };
  const Tensor embedding = table("tokens.weight", c.vocabulary);
  const Tensor positions = table("positions.weight", c.length);
  Tensor x = embedding.Gather(tokens) + positions.Gather(position);
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string name = StrCat("layers.", i);
    const Tensor seen = attention(name, nn::LayerNorm(b, name + ".norm1", c.width, c.Layer())(x));
    x = x + nn::Linear(b, name + ".out", c.width, c.width, c.Layer())(seen);
    const Tensor normal = nn::LayerNorm(b, name + ".norm2", c.width, c.Layer())(x);
    const Tensor inner =
        nn::Linear(b, name + ".up", c.width, 4 * c.width, c.Layer())(normal).GeluTanh();
    x = x + nn::Linear(b, name + ".down", 4 * c.width, c.width, c.Layer())(inner);
  }
  x = nn::LayerNorm(b, "norm", c.width, c.Layer())(x);
  return nn::Linear(b, "head", c.width, c.vocabulary, c.Layer())(x);
}

// Input "text" [batch, length + 1] i32; one step on the weights; output "loss" [].
absl::StatusOr<Plan> TrainPlan(const Config& c, int64_t batch, double rate) {
  Builder b;
  const Tensor text = b.Param(DType::kInt32, {batch, c.length + 1}, "text");
  const Tensor position = b.Iota(DType::kInt32, c.length);
  const Tensor may_see = position.Le(position.Unsqueeze(-1));  // [query, key]
  const Tensor logits = Logits(&b, c, text.Slice(1, 0, c.length), position,
                               [&](const std::string& name, const Tensor& x) {
                                 const auto [q, k, v] = Project(&b, c, name, x);
                                 return Attend(q, k, v, may_see);
                               });
  const Tensor loss = logits.CrossEntropy(text.Slice(1, 1, c.length + 1));
  const std::vector<Tensor> weights = b.trainable();
  optim::Adam(&b, weights, Gradients(loss, weights), {.lr = rate});
  b.Output(loss, "loss");
  return b.Finish();
}

// Input "token" [1, 1] i32, variable "position"; output "logits" [vocabulary] of the next one.
absl::StatusOr<Plan> WritePlan(const Config& c) {
  Builder b;
  const Tensor token = b.Param(DType::kInt32, {1, 1}, "token");
  const Tensor at = b.Variable("position", 0, c.length - 1);
  const Tensor may_see = b.Iota(DType::kInt64, c.length).Le(at);
  const auto cache = [&](const std::string& name, const Tensor& now) {
    const Tensor past = b.State(DType::kFloat32, {1, c.heads, c.length, c.width / c.heads}, name,
                                Init::Constant(0));
    return b.Assign(past.Narrow(2, at, 1), now);
  };
  const Tensor logits =
      Logits(&b, c, token, at.Cast(DType::kInt32).Reshape({1}),
             [&](const std::string& name, const Tensor& x) {
               const auto [q, k, v] = Project(&b, c, name, x);
               return Attend(q, cache(name + ".cache.k", k), cache(name + ".cache.v", v), may_see);
             });
  b.Output(logits.Reshape({c.vocabulary}), "logits");
  return b.Finish();
}

// The text as numbers of characters, and what they mean.
struct Text {
  std::vector<int32_t> tokens;
  std::string characters;  // by number
};

absl::StatusOr<std::string> Decompress(const std::string& path, const std::string& bytes) {
  const std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream(ZSTD_createDStream(),
                                                                          &ZSTD_freeDStream);
  std::string text, part(ZSTD_DStreamOutSize(), '\0');
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  size_t more = 1;
  while (in.pos < in.size) {
    ZSTD_outBuffer out{part.data(), part.size(), 0};
    more = ZSTD_decompressStream(stream.get(), &out, &in);
    if (ZSTD_isError(more)) return InvalidArgument(path, ": ", ZSTD_getErrorName(more));
    text.append(part, 0, out.pos);
    if (static_cast<int64_t>(text.size()) > kMaxTextBytes) {
      return InvalidArgument(path, ": holds more than ", kMaxTextBytes, " bytes");
    }
  }
  if (more != 0) return InvalidArgument(path, ": ends too early");
  return text;
}

absl::StatusOr<Text> ReadText(const std::string& path) {
  TG_ASSIGN_OR_RETURN(std::string bytes, ReadFile(path, kMaxTextBytes));
  if (path.ends_with(".zst")) {
    TG_ASSIGN_OR_RETURN(bytes, Decompress(path, bytes));
  }
  Text out;
  std::array<int32_t, 256> number;
  number.fill(-1);
  for (const unsigned char c : bytes) {
    if (number[c] < 0) {
      number[c] = static_cast<int32_t>(out.characters.size());
      out.characters.push_back(static_cast<char>(c));
    }
    out.tokens.push_back(number[c]);
  }
  return out;
}

absl::Status Train(RemoteSession* session, RemoteState* state, const Config& c, const Text& text,
                   int64_t steps, int64_t batch, double rate) {
  auto progress = std::make_unique<Progress>("building the training graph");
  TG_ASSIGN_OR_RETURN(const Plan plan, TrainPlan(c, batch, rate));
  progress = nullptr;
  TG_ASSIGN_OR_RETURN(const auto step, Send(session, state, plan));
  progress = std::make_unique<Progress>("training", steps, "steps");
  const auto start = std::chrono::steady_clock::now();
  const uint64_t last = text.tokens.size() - static_cast<size_t>(c.length);
  for (int64_t i = 0; i < steps; ++i) {
    std::vector<int32_t> rows;
    for (int64_t row = 0; row < batch; ++row) {
      const uint64_t from = RandomBelow(c.seed, static_cast<uint64_t>(i * batch + row), last);
      const auto begin = text.tokens.begin() + static_cast<int64_t>(from);
      rows.insert(rows.end(), begin, begin + c.length + 1);
    }
    TG_RETURN_IF_ERROR(step->Set(
        "text", HostTensor::Of<int32_t>({batch, c.length + 1}, std::span<const int32_t>(rows))));
    step->Run();
    if (i % 20 == 0 || i + 1 == steps) {
      TG_ASSIGN_OR_RETURN(const HostTensor loss, step->Read("loss"));
      const double now = Seconds(start), done = static_cast<double>(i + 1);
      progress->Done(i + 1);
      progress->Clear();
      std::printf("step %5lld/%lld  loss %.4f  %.0f characters/s  %.0f s left\n",
                  static_cast<long long>(i + 1), static_cast<long long>(steps), loss.AsDoubles()[0],
                  done * static_cast<double>(batch * c.length) / now,
                  now * (static_cast<double>(steps) / done - 1));
      std::fflush(stdout);
    }
  }
  return absl::OkStatus();
}

// One of the characters, by softmax(logits / temperature).
int32_t Sample(const std::vector<float>& logits, double temperature, double uniform) {
  const float highest = *std::ranges::max_element(logits);
  std::vector<double> weight;
  double sum = 0;
  for (const float x : logits) {
    weight.push_back(std::exp((x - highest) / temperature));
    sum += weight.back();
  }
  for (size_t i = 0; i < weight.size(); ++i) {
    uniform -= weight[i] / sum;
    if (uniform < 0) return static_cast<int32_t>(i);
  }
  return static_cast<int32_t>(weight.size() - 1);
}

absl::Status Write(RemoteSession* session, RemoteState* state, const Config& c, const Text& text,
                   int64_t count, double temperature) {
  auto progress = std::make_unique<Progress>("building the generating graph");
  TG_ASSIGN_OR_RETURN(const Plan plan, WritePlan(c));
  progress = nullptr;
  TG_ASSIGN_OR_RETURN(const auto step, Send(session, state, plan));
  progress = std::make_unique<Progress>("generating", count, "characters");
  const auto start = std::chrono::steady_clock::now();
  int32_t token = text.tokens[0];
  std::string out;
  for (int64_t i = 0; i < count; ++i) {
    // After `length` characters the model begins anew with the last one.
    TG_RETURN_IF_ERROR(step->SetVariable("position", i % c.length));
    TG_RETURN_IF_ERROR(step->Set("token", HostTensor::Of<int32_t>({1, 1}, {token})));
    step->Run();
    TG_ASSIGN_OR_RETURN(const HostTensor logits, step->Read("logits"));
    token = Sample(logits.Values<float>(), temperature,
                   UnitFraction(c.seed + 1, static_cast<uint64_t>(i)));
    out.push_back(text.characters[static_cast<size_t>(token)]);
    progress->Done(i + 1);
  }
  progress = nullptr;
  std::printf("---\n%s\n---\nwrote %lld characters, %.0f characters/s\n", out.c_str(),
              static_cast<long long>(count), static_cast<double>(count) / Seconds(start));
  return absl::OkStatus();
}

absl::Status Run(const Flags& flags) {
  Config c;
  TG_ASSIGN_OR_RETURN(c.layers, IntFlag(flags, "layers", 1, 48));
  TG_ASSIGN_OR_RETURN(c.heads, IntFlag(flags, "heads", 1, 64));
  TG_ASSIGN_OR_RETURN(c.width, IntFlag(flags, "width", 1, 8192));
  TG_ASSIGN_OR_RETURN(c.length, IntFlag(flags, "length", 1, 8192));
  TG_ASSIGN_OR_RETURN(const int64_t batch, IntFlag(flags, "batch", 1, 4096));
  TG_ASSIGN_OR_RETURN(const int64_t steps, IntFlag(flags, "steps", 0, 1'000'000));
  TG_ASSIGN_OR_RETURN(const int64_t count, IntFlag(flags, "characters", 0, 1'000'000));
  TG_ASSIGN_OR_RETURN(const int64_t seed, IntFlag(flags, "seed", 0, INT64_MAX));
  c.seed = static_cast<uint64_t>(seed);
  if (c.width % c.heads != 0) {
    return InvalidArgument("--width: ", c.width, " does not divide into ", c.heads, " heads");
  }
  if (flags.GetString("text").empty()) {
    return InvalidArgument("--text is missing; name a file to learn from, such as README.md");
  }
  TG_ASSIGN_OR_RETURN(const Text text, ReadText(flags.GetString("text")));
  if (static_cast<int64_t>(text.tokens.size()) <= c.length) {
    return InvalidArgument("--text: has ", text.tokens.size(), " characters, expected more than ",
                           c.length);
  }
  c.vocabulary = static_cast<int64_t>(text.characters.size());
  std::printf("%zu characters, %lld different ones\n", text.tokens.size(),
              static_cast<long long>(c.vocabulary));
  TG_ASSIGN_OR_RETURN(const auto connection, Connect(flags));
  TG_ASSIGN_OR_RETURN(const auto session, connection->OpenSession());
  RemoteState state(session.get());
  TG_RETURN_IF_ERROR(Train(session.get(), &state, c, text, steps, batch, 3e-3));
  return Write(session.get(), &state, c, text, count, 0.8);
}

}  // namespace
}  // namespace telegrad::examples

int main(int argc, char** argv) {
  using telegrad::FlagKind;
  return telegrad::examples::Main(
      argc, argv, "Trains a character-level GPT on a text and generates text with it.",
      {
          {"text", 't', FlagKind::kString, "", "FILE",
           "File of the text to learn from, plain or .zst"},
          {"steps", 's', FlagKind::kInt, "300", "N", "Number of training steps"},
          {"batch", 'b', FlagKind::kInt, "16", "N", "Number of texts in one step"},
          {"length", 'l', FlagKind::kInt, "64", "N",
           "Number of characters that the model sees at once"},
          {"layers", 0, FlagKind::kInt, "3", "N", "Number of layers of the model"},
          {"heads", 0, FlagKind::kInt, "4", "N", "Number of attention heads of each layer"},
          {"width", 'w', FlagKind::kInt, "128", "N", "Number of channels"},
          {"characters", 'c', FlagKind::kInt, "400", "N",
           "Number of characters to generate at the end"},
          {"seed", 0, FlagKind::kInt, "1", "N",
           "Seed of the initial weights, the batches and the generated text"},
      },
      &telegrad::examples::Run);
}
