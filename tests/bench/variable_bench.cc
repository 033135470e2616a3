// Graphs with a variable size on the CPU: the general form, which is for all values, against a form
// in which the value is a constant. The two run in turns.
//
// Usage: variable_bench [ROUNDS [CASE]]
// Prints for each graph and value the median times in microseconds and the median of the ratios of
// neighbouring runs.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "devices/cpu/cpu_device.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "engine/execution/executable_cache.h"
#include "engine/frontend/nn/nn.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/host_tensor.h"
#include "engine/ir/content_hash.h"
#include "tests/bench/timing.h"
#include "tests/models/transformer.h"

namespace telegrad {
namespace {

constexpr int64_t kBound = 1024;
constexpr int64_t kValues[] = {8, 64, 100, 511, 1000, 1024};

Tensor Rows(Builder* b, const Tensor& n, int64_t channels) {
  return b->Param(DType::kFloat32, {kBound, channels}, "rows").Narrow(0, 0, n);
}

// [1, heads, n, size]
Tensor Heads(Builder* b, const Tensor& n, const char* name) {
  return b->Param(DType::kFloat32, {1, 8, kBound, 64}, name).Narrow(2, 0, n);
}

Tensor Mlp(Builder* b, const Tensor& n) {
  return testing::Perceptron(b, "mlp", Rows(b, n, 256), &Tensor::GeluTanh);
}
Tensor Normalized(Builder* b, const Tensor& n) {
  return nn::LayerNorm(b, "norm", 768)(Rows(b, n, 768));
}
Tensor Gelu(Builder* b, const Tensor& n) { return Rows(b, n, 768).GeluTanh(); }
Tensor Columns(Builder* b, const Tensor& n, int64_t rows) {
  return b->Param(DType::kFloat32, {rows, kBound}, "x").Narrow(1, 0, n);
}
Tensor GeluOfColumns(Builder* b, const Tensor& n) { return Columns(b, n, 256).GeluTanh(); }
Tensor SoftmaxOfColumns(Builder* b, const Tensor& n) { return Columns(b, n, 64).Softmax(); }
Tensor SumsOfRows(Builder* b, const Tensor& n) { return Columns(b, n, 256).Sum({1}); }
Tensor SumsOfColumns(Builder* b, const Tensor& n) { return Rows(b, n, 768).Sum({0}); }
Tensor ProductOfColumns(Builder* b, const Tensor& n) {
  return b->Param(DType::kFloat32, {64, 64}, "w").MatMul(Columns(b, n, 64));
}
Tensor ProductOverColumns(Builder* b, const Tensor& n) {
  return Columns(b, n, 64).MatMul(Rows(b, n, 64));
}
Tensor OneQuery(Builder* b, const Tensor& n) {
  const Tensor q = b->Param(DType::kFloat32, {1, 8, 1, 64}, "q");
  return q.ScaledDotProductAttention(Heads(b, n, "k"), Heads(b, n, "v"), {}, /*causal=*/false);
}
Tensor Prefill(Builder* b, const Tensor& n) {
  return Heads(b, n, "q").ScaledDotProductAttention(Heads(b, n, "k"), Heads(b, n, "v"), {},
                                                    /*causal=*/true);
}

struct Case {
  std::string_view name;
  Tensor (*make)(Builder*, const Tensor& n);
};
constexpr Case kCases[] = {
    {"mlp of n x 256", Mlp},
    {"layer norm of n x 768", Normalized},
    {"gelu of n x 768", Gelu},
    {"gelu of 256 x n", GeluOfColumns},
    {"sums of 256 rows of n", SumsOfRows},
    {"sums of n rows of 768", SumsOfColumns},
    {"64 x 64 times 64 x n", ProductOfColumns},
    {"64 x n times n x 64", ProductOverColumns},
    {"softmax of 64 x n", SoftmaxOfColumns},
    {"a query and n keys", OneQuery},
    {"causal attention of n", Prefill},
};

class Graphs {
 public:
  absl::Status Open(const Case& c) {
    Builder b;
    const Tensor n = b.Variable("n", 1, kBound);
    b.Output(c.make(&b, n), "out");
    TG_ASSIGN_OR_RETURN(plan_, b.Finish());
    hash_ = ContentHash(plan_.graph.root());
    CpuOptions options;
    options.target = HostTarget(0);
    TG_ASSIGN_OR_RETURN(device_, OpenCpu(options));
    for (const Slot& slot : plan_.slots) {
      const int64_t bytes = BytesOf(slot.dtype, NumElements(slot.shape));
      TG_ASSIGN_OR_RETURN(auto memory, device_->Alloc(std::max<int64_t>(bytes, 1)));
      auto* const values = static_cast<float*>(memory->host());
      for (int64_t i = 0; i < bytes / 4; ++i) values[i] = static_cast<float>(i * 7 % 13 - 6) / 8;
      bindings_.push_back({std::move(memory), 0, bytes, NewContent()});
    }
    return absl::OkStatus();
  }

  // The form that runs of the value use once there were so many of them.
  absl::StatusOr<std::shared_ptr<const Executable>> Form(ExecutableCache& cache, int64_t value) {
    std::shared_ptr<const Executable> out;
    for (int i = 0; i < 5; ++i) {
      Budget budget;
      const std::vector<VarValue> values{{plan_.variables[0].id, value}};
      TG_ASSIGN_OR_RETURN(auto made, cache.Get(hash_, plan_.graph, *device_, &budget, values));
      out = std::move(made.executable);
      TG_RETURN_IF_ERROR(Seconds(*out).status());
    }
    return out;
  }

  absl::StatusOr<double> Seconds(const Executable& executable) {
    const double begin = bench::Seconds();
    TG_ASSIGN_OR_RETURN(const TimelinePoint end, executable.Submit(bindings_, {}));
    TG_RETURN_IF_ERROR(end.Wait());
    return bench::Seconds() - begin;
  }

 private:
  Plan plan_;
  Digest hash_;
  std::unique_ptr<Device> device_;
  std::vector<BufferView> bindings_;
};

absl::Status Measure(const Case& c, int rounds) {
  Graphs graphs;
  TG_RETURN_IF_ERROR(graphs.Open(c));
  ExecutableCache general({.specializations = 0});
  for (const int64_t value : kValues) {
    ExecutableCache special(ExecutableCache::Limits{});
    TG_ASSIGN_OR_RETURN(const auto all, graphs.Form(general, value));
    TG_ASSIGN_OR_RETURN(const auto one, graphs.Form(special, value));
    std::vector<double> of_all, of_one, ratios;
    for (int i = 0; i < rounds; ++i) {
      TG_ASSIGN_OR_RETURN(of_all.emplace_back(), graphs.Seconds(*all));
      TG_ASSIGN_OR_RETURN(of_one.emplace_back(), graphs.Seconds(*one));
      ratios.push_back(of_all.back() / of_one.back());
    }
    std::printf("%-24s n %4ld: general %8.1f us, specialized %8.1f us, ratio %.2f\n",
                std::string(c.name).c_str(), static_cast<long>(value), bench::Median(of_all) * 1e6,
                bench::Median(of_one) * 1e6, bench::Median(ratios));
    std::fflush(stdout);
  }
  std::printf("%lu general forms\n", static_cast<unsigned long>(general.stats().general_forms));
  return absl::OkStatus();
}

absl::Status Main(int rounds, std::string_view name) {
  for (const Case& c : kCases) {
    if (c.name.find(name) == c.name.npos) continue;
    TG_RETURN_IF_ERROR(Measure(c, rounds));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace telegrad

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 200;
  const absl::Status status = telegrad::Main(rounds, argc > 2 ? argv[2] : "");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
