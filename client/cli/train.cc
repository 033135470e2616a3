// telegrad train digits: trains the digits network on the server. Weights and optimizer state stay
// on the device; each step sends one batch and is enqueued without waiting for the one before.
#include <chrono>
#include <cstdio>
#include <deque>
#include <memory>
#include <vector>

#include "client/cc/remote_plan.h"
#include "client/cli/command.h"
#include "client/terminal/progress.h"
#include "engine/base/burst.h"
#include "engine/base/files.h"
#include "engine/base/status.h"
#include "engine/frontend/io/byte_sink.h"
#include "engine/frontend/io/safetensors.h"
#include "engine/frontend/io/tensor_file.h"
#include "engine/frontend/nn/datasets.h"
#include "engine/frontend/nn/models.h"

namespace telegrad::cli {
namespace {

constexpr int kPlotWidth = 64, kPlotHeight = 8;  // characters
constexpr std::string_view kEpochKey = "telegrad.epochs";

struct TrainOptions {
  std::string data, save, resume;
  int64_t epochs = 0, batch = 0;
  bool plot = false;
  uint64_t seed = 0;
};

absl::StatusOr<TrainOptions> TrainOptionsOf(const Flags& flags) {
  if (flags.positional().size() != 1 || flags.positional()[0] != "digits") {
    return InvalidArgument("expected the name of a model: digits");
  }
  TrainOptions o;
  o.data = flags.GetString("data");
  o.save = flags.GetString("save");
  o.resume = flags.GetString("resume");
  o.epochs = flags.GetInt("epochs");
  o.batch = flags.GetInt("batch");
  const std::string& plot = flags.GetString("plot");
  o.plot = plot == "always" || (plot == "auto" && OutputIsTerminal());
  o.seed = static_cast<uint64_t>(flags.GetInt("seed"));
  return o;
}

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// What one epoch's steps report: read back while later steps are already under way.
struct StepResult {
  HostTensor loss, correct;
  std::vector<Future<Done>> reads;
};

class Trainer {
 public:
  Trainer(RemoteSession* session, const TrainOptions& options, Digits digits)
      : session_(session), options_(options), digits_(std::move(digits)), state_(session) {}

  absl::Status Run();

 private:
  absl::Status Build();
  absl::Status Resume();
  absl::Status Epoch(int64_t epoch);
  absl::Status Step(const Examples& batch, StepResult* result);
  absl::StatusOr<double> HeldOut();
  absl::Status Save();

  RemoteSession* session_;
  const TrainOptions& options_;
  Digits digits_;
  RemoteState state_;
  std::unique_ptr<RemotePlan> train_, eval_;
  int64_t done_epochs_ = 0;
  double images_ = 0, seconds_ = 0;
  std::vector<double> losses_;          // of every step
  std::unique_ptr<Progress> progress_;  // of all epochs
};

absl::Status Trainer::Build() {
  auto line = std::make_shared<CompileLine>("compiling", [this] { return session_->Compiling(); });
  const Progress progress([line](double seconds) { return (*line)(seconds); });
  const Stopwatch watch;
  DigitsCnn model;
  model.seed = options_.seed;
  TG_ASSIGN_OR_RETURN(const Plan train, model.TrainStep(options_.batch));
  TG_ASSIGN_OR_RETURN(const Plan eval, model.Eval(digits_.held_out.size()));
  const double built = watch.seconds();
  TG_ASSIGN_OR_RETURN(train_, RemotePlan::Create(session_, &state_, train, /*compile=*/true));
  TG_ASSIGN_OR_RETURN(eval_, RemotePlan::Create(session_, &state_, eval, /*compile=*/true));
  TG_RETURN_IF_ERROR(eval_->Set("images", digits_.held_out.images));
  std::printf("graphs: %u and %u nodes, built in %.1f ms, scheduled and compiled in %.2f s\n",
              train.graph.graph->size(), eval.graph.graph->size(), built * 1e3,
              watch.seconds() - built);
  return absl::OkStatus();
}

absl::Status Trainer::Resume() {
  if (options_.resume.empty()) return absl::OkStatus();
  TG_ASSIGN_OR_RETURN(const auto saved, OpenTensorFile(options_.resume));
  const auto entry = saved->metadata().find(kEpochKey);
  const std::string* epochs =
      entry != saved->metadata().end() ? std::get_if<std::string>(&entry->second) : nullptr;
  if (epochs == nullptr) {
    return InvalidArgument(options_.resume, " was not saved by telegrad train");
  }
  done_epochs_ = std::strtoll(epochs->c_str(), nullptr, 10);
  state_.Preset(saved);
  std::printf("resumed from %s after %lld epochs\n", options_.resume.c_str(),
              static_cast<long long>(done_epochs_));
  return absl::OkStatus();
}

absl::Status Trainer::Step(const Examples& batch, StepResult* result) {
  const Burst burst;  // its operations go in one message
  TG_RETURN_IF_ERROR(train_->Set("images", batch.images));
  TG_RETURN_IF_ERROR(train_->Set("labels", batch.labels));
  train_->Run();
  for (auto [slot, read] : {std::pair("loss", &result->loss), {"correct", &result->correct}}) {
    TG_ASSIGN_OR_RETURN(Future<Done> future, train_->ReadAsync(slot, read));
    result->reads.push_back(std::move(future));
  }
  return absl::OkStatus();
}

absl::Status Trainer::Epoch(int64_t epoch) {
  const Stopwatch watch;
  const int64_t steps = digits_.train.size() / options_.batch;
  progress_->Say(StrCat("epoch ", epoch + 1, "/", options_.epochs));
  std::deque<StepResult> results;
  absl::Status status = absl::OkStatus();
  for (int64_t step = 0; step < steps && status.ok(); ++step) {
    status = Step(Batch(digits_.train, options_.seed * 1'000'003 + epoch, step * options_.batch,
                        options_.batch),
                  &results.emplace_back());
  }
  // Every read is waited for, whatever happened: it fills a tensor of `results`.
  double loss = 0, correct = 0;
  for (StepResult& r : results) {
    for (const Future<Done>& read : r.reads) {
      if (const auto& done = read.Get(); !done.ok() && status.ok()) status = done.status();
    }
    if (!status.ok()) continue;
    losses_.push_back(r.loss.Values<float>()[0]);
    progress_->Done(static_cast<int64_t>(losses_.size()));
    loss += losses_.back();
    correct += r.correct.Values<int32_t>()[0];
  }
  TG_RETURN_IF_ERROR(status);
  const double images = static_cast<double>(steps * options_.batch);
  images_ += images;
  seconds_ += watch.seconds();
  TG_ASSIGN_OR_RETURN(const double held_out, HeldOut());
  progress_->Clear();
  std::printf("epoch %2lld/%lld  loss %.4f  train %.2f%%  held out %.2f%%  %.0f images/s\n",
              static_cast<long long>(epoch + 1), static_cast<long long>(options_.epochs),
              loss / static_cast<double>(steps), 100 * correct / images, 100 * held_out,
              images / watch.seconds());
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::StatusOr<double> Trainer::HeldOut() {
  eval_->Run();
  TG_ASSIGN_OR_RETURN(const HostTensor predictions, eval_->Read("predictions"));
  const std::vector<int32_t> got = predictions.Values<int32_t>();
  const std::vector<int32_t> want = digits_.held_out.labels.Values<int32_t>();
  double correct = 0;
  for (size_t i = 0; i < want.size(); ++i) correct += got[i] == want[i];
  return correct / static_cast<double>(want.size());
}

absl::Status Trainer::Save() {
  if (options_.save.empty()) return absl::OkStatus();
  TG_ASSIGN_OR_RETURN(const auto tensors, state_.Download());
  const std::map<std::string, std::string> metadata = {
      {std::string(kEpochKey), StrCat(std::max(options_.epochs, done_epochs_))}};
  TG_RETURN_IF_ERROR(SaveFile(
      options_.save, [&](ByteSink* sink) { return WriteSafetensors(tensors, metadata, sink); }));
  size_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.bytes.size();
  std::printf("saved %zu tensors, %zu bytes, to %s\n", tensors.size(), bytes,
              options_.save.c_str());
  return absl::OkStatus();
}

absl::Status Trainer::Run() {
  std::printf("digits: %lld images to train on, %lld held out; batches of %lld\n",
              static_cast<long long>(digits_.train.size()),
              static_cast<long long>(digits_.held_out.size()),
              static_cast<long long>(options_.batch));
  TG_RETURN_IF_ERROR(Resume());
  TG_RETURN_IF_ERROR(Build());
  const int64_t steps = digits_.train.size() / options_.batch;
  progress_ = std::make_unique<Progress>(
      "train", steps * std::max<int64_t>(0, options_.epochs - done_epochs_), "steps");
  for (int64_t epoch = done_epochs_; epoch < options_.epochs; ++epoch) {
    TG_RETURN_IF_ERROR(Epoch(epoch));
  }
  progress_.reset();
  TG_ASSIGN_OR_RETURN(const double accuracy, HeldOut());
  TG_RETURN_IF_ERROR(Save());
  std::printf("held-out accuracy: %.2f%%\n", 100 * accuracy);
  if (seconds_ > 0) std::printf("training speed: %.0f images/s\n", images_ / seconds_);
  if (options_.plot && !losses_.empty()) {
    std::printf("loss of %zu steps:\n%s", losses_.size(),
                Plot(losses_, kPlotWidth, kPlotHeight).c_str());
  }
  return absl::OkStatus();
}

// Where the time went, from the server's counters before and after.
void Report(const std::map<std::string, double>& before, const std::map<std::string, double>& after,
            double total) {
  const auto delta = [&](const std::string& name) {
    const auto a = after.find(name), b = before.find(name);
    return (a == after.end() ? 0 : a->second) - (b == before.end() ? 0 : b->second);
  };
  std::printf(
      "kernels: %.0f compiled, %.0f found compiled, %.0f launched; runs: %.0f, %.0f from the "
      "cache\n",
      delta("telegrad_kernels_compiled_total"), delta("telegrad_kernel_cache_hits_total"),
      delta("telegrad_kernel_launches_total"), delta("telegrad_runs_total"),
      delta("telegrad_runs_cached_total"));
  std::printf(
      "time: %.2f s in all; on the device %.2f s, scheduling %.3f s, lowering %.3f s, compiling "
      "%.2f s "
      "(all threads)\n",
      total, delta("telegrad_run_seconds_total"), delta("telegrad_schedule_seconds_total"),
      delta("telegrad_lower_seconds_total"), delta("telegrad_compile_seconds_total"));
}

}  // namespace

absl::Status Train(const Flags& flags) {
  TG_ASSIGN_OR_RETURN(const TrainOptions options, TrainOptionsOf(flags));
  absl::StatusOr<Digits> read = ReadDigits(options.data);
  if (absl::IsNotFound(read.status()) && !flags.given("data")) {
    return NotFound(ToStd(read.status().message()),
                    "; name the file with --data, or run this in the folder of Telegrad's sources");
  }
  TG_ASSIGN_OR_RETURN(Digits digits, std::move(read));
  if (!options.save.empty()) TG_RETURN_IF_ERROR(CheckReplaceable(options.save));
  if (digits.train.size() < options.batch) {
    return InvalidArgument("--batch: ", options.batch, " is more than the ", digits.train.size(),
                           " images to train on");
  }
  TG_ASSIGN_OR_RETURN(const auto connection, Connect(flags));
  TG_ASSIGN_OR_RETURN(const auto before, connection->Stats());
  TG_ASSIGN_OR_RETURN(const auto session, connection->OpenSession());
  const Stopwatch watch;
  TG_RETURN_IF_ERROR(Trainer(session.get(), options, std::move(digits)).Run());
  const double total = watch.seconds();
  TG_ASSIGN_OR_RETURN(const auto after, connection->Stats());
  Report(before, after, total);
  return absl::OkStatus();
}

}  // namespace telegrad::cli
