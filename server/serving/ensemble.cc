#include "server/serving/ensemble.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "engine/base/status.h"

namespace telegrad {
namespace {

// Steps of one ensemble, the outermost or an inner one, with the names of its tensors.
struct Level {
  std::vector<EnsembleStep> steps;
  std::map<std::string, size_t> tensors;  // numbers
  std::vector<std::string> chain;         // of ensembles, from the outermost to this
  std::string where;                      // empty for the outermost
};

std::string ChainText(const std::vector<std::string>& chain, const std::string& last) {
  std::string out;
  for (const std::string& name : chain) StrAppend(&out, name, " -> ");
  return out + last;
}

class Resolver {
 public:
  explicit Resolver(const FindPart& find) : find_(find) {}

  absl::StatusOr<Ensemble> Run(const ModelConfig& config) {
    Level outermost{.steps = config.steps, .tensors = {}, .chain = {config.name}, .where = {}};
    for (const TensorSpec& spec : config.inputs) {
      out_.inputs.push_back(NumberOf(&outermost, spec.name));
    }
    for (const TensorSpec& spec : config.outputs) {
      out_.outputs.push_back(NumberOf(&outermost, spec.name));
    }
    levels_.push_back(std::move(outermost));
    while (!levels_.empty()) {
      Level level = std::move(levels_.front());
      levels_.pop_front();
      for (size_t i = 0; i < level.steps.size(); ++i) TG_RETURN_IF_ERROR(AddStep(&level, i));
    }
    TG_RETURN_IF_ERROR(Order(config));
    out_.tensors = names_.size();
    return std::move(out_);
  }

 private:
  size_t NumberOf(Level* level, const std::string& name) {
    const auto [it, fresh] = level->tensors.try_emplace(name, names_.size());
    if (fresh) names_.push_back(name);
    return it->second;
  }

  absl::Status AddStep(Level* level, size_t number) {
    const EnsembleStep& step = level->steps[number];
    const std::string where =
        StrCat(level->where, "step ", number + 1, " (", Clip(step.model, 64), ")");
    if (++count_ > kMostEnsembleSteps) {
      return ResourceExhausted(where, ": more than ", kMostEnsembleSteps, " steps in all");
    }
    if (std::ranges::find(level->chain, step.model) != level->chain.end()) {
      return InvalidArgument(where, ": an ensemble contains itself, ",
                             ChainText(level->chain, step.model));
    }
    auto part = find_(step.model, step.version);
    if (!part.ok()) {
      return absl::Status(part.status().code(),
                          StrCat(where, ": ", ToStd(part.status().message())));
    }
    const ModelConfig& config = part->config;
    TG_ASSIGN_OR_RETURN(const auto inputs,
                        Mapped(level, where, "input", config.inputs, step.inputs, /*all=*/true));
    TG_ASSIGN_OR_RETURN(const auto outputs, Mapped(level, where, "output", config.outputs,
                                                   step.outputs, /*all=*/false));
    if (config.steps.empty()) {
      if (config.sequences) {
        return Unimplemented(where,
                             ": the model keeps states of sequences, and an ensemble answers each "
                             "request for itself; call the model alone");
      }
      out_.steps.push_back({where, *std::move(part), inputs, outputs});
      return absl::OkStatus();
    }
    if (level->chain.size() >= kMostEnsembleDepth) {
      return ResourceExhausted(where, ": ensembles are nested deeper than ", kMostEnsembleDepth);
    }
    Level inner{
        .steps = config.steps, .tensors = {}, .chain = level->chain, .where = StrCat(where, ", ")};
    inner.chain.push_back(step.model);
    for (size_t i = 0; i < inputs.size(); ++i) inner.tensors[config.inputs[i].name] = inputs[i];
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] != Ensemble::kNobody) inner.tensors[config.outputs[i].name] = outputs[i];
    }
    levels_.push_back(std::move(inner));
    return absl::OkStatus();
  }

  // By `specs`, the tensors that `map` names.
  absl::StatusOr<std::vector<size_t>> Mapped(Level* level, const std::string& where,
                                             std::string_view what,
                                             const std::vector<TensorSpec>& specs,
                                             const std::map<std::string, std::string>& map,
                                             bool all) {
    for (const auto& [name, tensor] : map) {
      if (std::ranges::find(specs, name, &TensorSpec::name) == specs.end()) {
        return InvalidArgument(where, ": ", what, "_map names '", Clip(name, 64), "', which is no ",
                               what, " of the model");
      }
      if (tensor.empty()) {
        return InvalidArgument(where, ": ", what, "_map has no tensor for '", Clip(name, 64), "'");
      }
    }
    std::vector<size_t> out;
    for (const TensorSpec& spec : specs) {
      const auto it = map.find(spec.name);
      if (it == map.end() && all) {
        return InvalidArgument(where, ": ", what, "_map has nothing for '", spec.name, "'");
      }
      out.push_back(it == map.end() ? Ensemble::kNobody : NumberOf(level, it->second));
    }
    if (map.empty()) return InvalidArgument(where, ": ", what, "_map is empty");
    return out;
  }

  // Brings the steps into an order in which each comes after those whose tensors it takes.
  absl::Status Order(const ModelConfig& config) {
    std::vector<size_t> maker(names_.size(), Ensemble::kNobody);
    std::vector<std::vector<size_t>> takers(names_.size());
    std::vector<bool> given(names_.size());
    for (const size_t tensor : out_.inputs) given[tensor] = true;
    for (size_t i = 0; i < out_.steps.size(); ++i) {
      for (const size_t tensor : out_.steps[i].outputs) {
        if (tensor == Ensemble::kNobody) continue;
        if (maker[tensor] != Ensemble::kNobody || given[tensor]) {
          return InvalidArgument(
              out_.steps[i].where, ": tensor '", Clip(names_[tensor], 64), "' is made by ",
              given[tensor] ? "the request" : out_.steps[maker[tensor]].where, ", too");
        }
        maker[tensor] = i;
      }
    }
    std::vector<size_t> missing(out_.steps.size(), 0);
    std::deque<size_t> ready;
    for (size_t i = 0; i < out_.steps.size(); ++i) {
      for (const size_t tensor : out_.steps[i].inputs) {
        if (given[tensor]) continue;
        if (maker[tensor] == Ensemble::kNobody) {
          return InvalidArgument(out_.steps[i].where, ": no step makes the tensor '",
                                 Clip(names_[tensor], 64), "'");
        }
        ++missing[i];
        takers[tensor].push_back(i);
      }
      if (missing[i] == 0) ready.push_back(i);
    }
    for (size_t i = 0; i < config.outputs.size(); ++i) {
      if (maker[out_.outputs[i]] != Ensemble::kNobody) continue;
      return InvalidArgument("no step makes the output '", config.outputs[i].name, "'");
    }
    std::vector<Ensemble::Step> ordered;
    while (!ready.empty()) {
      const size_t next = ready.front();
      ready.pop_front();
      for (const size_t tensor : out_.steps[next].outputs) {
        if (tensor == Ensemble::kNobody) continue;
        for (const size_t taker : takers[tensor]) {
          if (--missing[taker] == 0) ready.push_back(taker);
        }
      }
      ordered.push_back(std::move(out_.steps[next]));
    }
    for (size_t i = 0; i < missing.size(); ++i) {
      if (missing[i] == 0) continue;
      return InvalidArgument(out_.steps[i].where,
                             ": it takes what can only be made after it, directly or not");
    }
    out_.steps = std::move(ordered);
    return absl::OkStatus();
  }

  const FindPart& find_;
  Ensemble out_;
  std::deque<Level> levels_;
  std::vector<std::string> names_;  // by the number of a tensor
  size_t count_ = 0;
};

// Whether a step can take as `input` what another one makes or takes as `other`; null: nobody.
absl::Status CheckTaken(const Ensemble::Step& step, const TensorSpec& input,
                        const TensorSpec* other) {
  if (other == nullptr) return absl::OkStatus();
  const std::string_view here = DatatypeOf(input), there = DatatypeOf(*other);
  const Shape &a = input.shape, &b = other->shape;
  bool fits = here.empty() || there.empty() || here == there;
  fits &= a.size() == b.size();
  for (size_t axis = 0; fits && axis < a.size(); ++axis) {
    fits = a[axis] < 0 || b[axis] < 0 || a[axis] == b[axis];
  }
  if (fits) return absl::OkStatus();
  return InvalidArgument(step.where, ": input '", input.name, "' is ", here, " of shape ",
                         ToString(a), ", and what comes to it is ", there, " of shape ",
                         ToString(b));
}

}  // namespace

absl::StatusOr<Ensemble> ResolveEnsemble(const ModelConfig& config, const FindPart& find) {
  return Resolver(find).Run(config);
}

absl::Status CompleteEnsemble(const Ensemble& ensemble, ModelConfig* config) {
  for (const auto* specs : {&config->inputs, &config->outputs}) {
    for (const TensorSpec& spec : *specs) {
      if (!spec.inner && !spec.ragged) continue;
      return Unimplemented("'", spec.name, "': an ensemble has no ",
                           spec.inner ? "reshape; its steps may have one" : "ragged batches");
    }
  }
  std::vector<const TensorSpec*> taken(ensemble.tensors), made(ensemble.tensors);
  bool batching = true;
  for (const Ensemble::Step& step : ensemble.steps) {
    const ModelConfig& part = step.part.config;
    batching &= part.batching.has_value();
    if (config->max_batch > part.max_batch) {
      return InvalidArgument(
          step.where, ": takes ",
          part.max_batch > 0 ? StrCat("batches of at most ", part.max_batch) : "no batches",
          ", and max_batch_size of the ensemble is ", config->max_batch);
    }
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      const size_t tensor = step.inputs[i];
      TG_RETURN_IF_ERROR(CheckTaken(step, part.inputs[i], made[tensor]));
      TG_RETURN_IF_ERROR(CheckTaken(step, part.inputs[i], taken[tensor]));
      taken[tensor] = &part.inputs[i];
    }
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      if (step.outputs[i] != Ensemble::kNobody) made[step.outputs[i]] = &part.outputs[i];
    }
  }
  std::vector<TensorSpec> inputs, outputs;
  for (size_t i = 0; i < config->inputs.size(); ++i) {
    const TensorSpec* const spec = taken[ensemble.inputs[i]];
    if (spec == nullptr) {
      return InvalidArgument("no step takes the input '", config->inputs[i].name, "'");
    }
    inputs.push_back(*spec);
    inputs.back().name = config->inputs[i].name;
    inputs.back().inner.reset();
    inputs.back().ragged = false;
  }
  for (size_t i = 0; i < config->outputs.size(); ++i) {
    outputs.push_back(*made[ensemble.outputs[i]]);
    outputs.back().name = config->outputs[i].name;
    outputs.back().labels.clear();
    outputs.back().inner.reset();
  }
  if (config->max_batch > 0 && batching && !config->batching) config->batching.emplace();
  return JoinSpecs(inputs, outputs, config);
}

}  // namespace telegrad
