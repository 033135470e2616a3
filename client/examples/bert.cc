// A BERT (Devlin et al. 2018), inference: what belongs at the masked place of a text.
//
//   bert --weights model.safetensors --tokens 101,7592,103,102 --mask 103
//
// Weights are named as in the files of Hugging Face's BertForMaskedLM. Texts come as token numbers:
// making them of characters is a tokenizer's work. Without --weights they are random.
#include <algorithm>
#include <charconv>

#include "client/examples/example.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/host_random.h"

namespace telegrad::examples {
namespace {

constexpr double kEpsilon = 1e-12;

struct Config {
  int64_t layers, heads, width, inner, vocabulary, positions;
};

class Bert {
 public:
  Bert(Builder* b, const Config& config) : b_(b), c_(config) {}

  // tokens [batch, n] i32, all of them there -> hidden [batch, n, width].
  Tensor Hidden(const Tensor& tokens) {
    const std::string e = "bert.embeddings.";
    const int64_t n = tokens.dim(1);
    const Tensor position = Weight(e + "position_embeddings.weight", {c_.positions, c_.width});
    const Tensor type = Weight(e + "token_type_embeddings.weight", {2, c_.width});
    Tensor x = Words().Gather(tokens) + position.Slice(0, 0, n) + type.Slice(0, 0, 1);
    x = Norm(e + "LayerNorm", x);
    for (int64_t i = 0; i < c_.layers; ++i) {
      const std::string name = StrCat("bert.encoder.layer.", i, ".");
      x = Norm(name + "attention.output.LayerNorm",
               x + Dense(name + "attention.output.dense", Attention(name, x), c_.width));
      const Tensor inner = Dense(name + "intermediate.dense", x, c_.inner).Gelu();
      x = Norm(name + "output.LayerNorm", x + Dense(name + "output.dense", inner, c_.width));
    }
    return x;
  }

  // hidden -> [batch, n, vocabulary], by the weights of the embedding.
  Tensor Words(const Tensor& hidden) {
    const std::string head = "cls.predictions.";
    const Tensor x = Norm(head + "transform.LayerNorm",
                          Dense(head + "transform.dense", hidden, c_.width).Gelu());
    return x.MatMul(Words().Transpose()) + Weight(head + "bias", {c_.vocabulary});
  }

 private:
  Tensor Words() {
    if (!words_.valid()) {
      words_ = Weight("bert.embeddings.word_embeddings.weight", {c_.vocabulary, c_.width});
    }
    return words_;
  }
  Tensor Weight(const std::string& name, const Shape& shape, double low = -0.04,
                double high = 0.04) {
    return b_->State(DType::kFloat32, shape, name, Init::Uniform(low, high, NamedSeed(1, name)));
  }
  Tensor Dense(const std::string& name, const Tensor& x, int64_t out) {
    return x.Linear(Weight(name + ".weight", {out, x.dim(-1)}), Weight(name + ".bias", {out}));
  }
  Tensor Norm(const std::string& name, const Tensor& x) {
    return x.LayerNorm({-1}, kEpsilon) * Weight(name + ".weight", {c_.width}, 1, 1) +
           Weight(name + ".bias", {c_.width}, 0, 0);
  }
  Tensor Attention(const std::string& name, const Tensor& x) {
    const auto heads = [&](const char* part) {
      const Tensor y = Dense(StrCat(name, "attention.self.", part), x, c_.width);
      return y.Reshape({y.dim(0), y.dim(1), c_.heads, -1}).Permute({0, 2, 1, 3});
    };
    const Tensor q = heads("query"), k = heads("key"), v = heads("value");
    const Tensor seen = q.ScaledDotProductAttention(k, v).Permute({0, 2, 1, 3});
    return seen.Reshape({x.dim(0), x.dim(1), c_.width});
  }

  Builder* b_;
  const Config c_;
  Tensor words_;
};

absl::StatusOr<std::vector<int32_t>> Tokens(const std::string& list, const Config& c) {
  std::vector<int32_t> out;
  for (const char* at = list.data(); at < list.data() + list.size();) {
    int32_t token = 0;
    const auto [end, error] = std::from_chars(at, list.data() + list.size(), token);
    if (error != std::errc() || token < 0 || token >= c.vocabulary ||
        (*end != ',' && *end != '\0')) {
      return InvalidArgument("--tokens: expected numbers from 0 to ", c.vocabulary - 1,
                             " with commas, got ", list);
    }
    out.push_back(token);
    at = end + 1;
  }
  if (out.empty() || static_cast<int64_t>(out.size()) > c.positions) {
    return InvalidArgument("--tokens: ", out.size(), " of them, expected 1 to ", c.positions);
  }
  return out;
}

absl::Status Run(const Flags& flags) {
  Config c;
  TG_ASSIGN_OR_RETURN(c.layers, IntFlag(flags, "layers", 1, 96));
  TG_ASSIGN_OR_RETURN(c.heads, IntFlag(flags, "heads", 1, 128));
  TG_ASSIGN_OR_RETURN(c.width, IntFlag(flags, "width", 1, 16384));
  TG_ASSIGN_OR_RETURN(c.inner, IntFlag(flags, "inner", 1, 65536));
  TG_ASSIGN_OR_RETURN(c.vocabulary, IntFlag(flags, "vocabulary", 1, 1'000'000));
  TG_ASSIGN_OR_RETURN(c.positions, IntFlag(flags, "positions", 1, 65536));
  TG_ASSIGN_OR_RETURN(const int64_t runs, IntFlag(flags, "runs", 1, 100'000));
  TG_ASSIGN_OR_RETURN(const int64_t mask, IntFlag(flags, "mask", 0, c.vocabulary - 1));
  if (c.width % c.heads != 0) {
    return InvalidArgument("--width: ", c.width, " does not divide into ", c.heads, " heads");
  }
  TG_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, Tokens(flags.GetString("tokens"), c));
  const std::string& to = flags.GetString("hidden");
  if (!to.empty()) TG_RETURN_IF_ERROR(CheckReplaceable(to));
  const auto n = static_cast<int64_t>(tokens.size());
  const auto masked = std::ranges::find(tokens, static_cast<int32_t>(mask));
  const int64_t place = masked == tokens.end() ? n - 1 : masked - tokens.begin();

  auto progress = std::make_unique<Progress>("building the graph");
  Builder b;
  Bert bert(&b, c);
  const Tensor hidden = bert.Hidden(b.Param(DType::kInt32, {1, n}, "tokens"));
  const Tensor words = bert.Words(hidden.Slice(1, place, place + 1)).Reshape({c.vocabulary});
  b.Output(words.Softmax(), "chances");
  b.Output(hidden, "hidden");
  TG_ASSIGN_OR_RETURN(const Plan plan, b.Finish());
  progress = nullptr;

  TG_ASSIGN_OR_RETURN(const auto connection, Connect(flags));
  TG_ASSIGN_OR_RETURN(const auto session, connection->OpenSession());
  RemoteState state(session.get());
  TG_RETURN_IF_ERROR(LoadWeights(flags, plan, &state));
  TG_ASSIGN_OR_RETURN(const auto net, Send(session.get(), &state, plan));
  TG_RETURN_IF_ERROR(
      net->Set("tokens", HostTensor::Of<int32_t>({1, n}, std::span<const int32_t>(tokens))));
  TG_ASSIGN_OR_RETURN(const HostTensor chances, RunTimed(net.get(), "chances", runs, "a text"));
  std::printf("place %lld:\n", static_cast<long long>(place));
  PrintLikely("token", chances);
  if (!to.empty()) {
    TG_ASSIGN_OR_RETURN(const HostTensor out, net->Read("hidden"));
    TG_RETURN_IF_ERROR(WriteNpyFile(to, out));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace telegrad::examples

int main(int argc, char** argv) {
  using telegrad::FlagKind;
  return telegrad::examples::Main(
      argc, argv, "Predicts the masked token of a text with a BERT.",
      {
          {"weights", 0, FlagKind::kString, "", "FILE",
           "File of the weights of BertForMaskedLM (default: random weights)"},
          {"tokens", 't', FlagKind::kString, "101,7592,2088,103,102", "N,N,...",
           "Tokens of the text, separated by commas"},
          {"mask", 'm', FlagKind::kInt, "103", "N", "Token that marks the position to predict"},
          {"runs", 'n', FlagKind::kInt, "10", "N",
           "Number of runs over which the time of one is measured"},
          {"hidden", 'o', FlagKind::kString, "", "FILE.npy",
           "File that the last hidden states are written to"},
          {"layers", 0, FlagKind::kInt, "12", "N", "Number of layers of the encoder"},
          {"heads", 0, FlagKind::kInt, "12", "N", "Number of attention heads of each layer"},
          {"width", 'w', FlagKind::kInt, "768", "N", "Number of channels"},
          {"inner", 0, FlagKind::kInt, "3072", "N", "Number of channels inside of each perceptron"},
          {"vocabulary", 0, FlagKind::kInt, "30522", "N", "Number of different tokens"},
          {"positions", 0, FlagKind::kInt, "512", "N", "Number of positions of the model"},
      },
      &telegrad::examples::Run);
}
