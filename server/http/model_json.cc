// Each function writes one kind of object, with the names of the protocol's messages as JSON has
// them.
#include "server/http/model_json.h"

#include "engine/base/json.h"
#include "engine/base/strings.h"
#include "engine/base/version.h"
#include "server/serving/datatype.h"

namespace telegrad {
namespace {

// ELEMENT(x), ELEMENT(y) in brackets.
template <typename Range, typename Element>
std::string Array(const Range& range, Element element) {
  std::string out = "[";
  for (const auto& value : range) StrAppend(&out, out.size() > 1 ? "," : "", element(value));
  return out + "]";
}

std::string Numbers(ShapeView values) {
  return Array(values, [](int64_t value) { return StrCat(value); });
}

std::string TensorJson(const TensorSpec& spec) {
  return StrCat("{\"name\":", JsonQuote(spec.name), ",\"datatype\":\"", DatatypeOf(spec),
                "\",\"shape\":", Numbers(spec.shape), "}");
}

// Types as a configuration names them: FP32 is TYPE_FP32.
std::string IoJson(const TensorSpec& spec, bool batches) {
  const auto dims_of = [&](ShapeView shape) {
    return Numbers(batches && !shape.empty() ? shape.subspan(1) : shape);
  };
  return StrCat(
      "{\"name\":", JsonQuote(spec.name), ",\"data_type\":\"TYPE_",
      spec.strings ? "STRING" : DatatypeOf(spec.dtype), "\",\"dims\":", dims_of(spec.shape),
      spec.inner ? StrCat(",\"reshape\":{\"shape\":", dims_of(*spec.inner), "}") : "",
      spec.ragged ? ",\"allow_ragged_batch\":true" : "",
      spec.labels.empty() ? "" : StrCat(",\"label_filename\":", JsonQuote(spec.labels)), "}");
}

std::string PolicyJson(const QueuePolicy& policy) {
  return StrCat("{\"timeout_action\":\"", policy.delay ? "DELAY" : "REJECT",
                "\",\"default_timeout_microseconds\":", policy.timeout_us,
                ",\"allow_timeout_override\":", policy.may_override ? "true" : "false",
                ",\"max_queue_size\":", policy.most, "}");
}

std::string SequencesJson(const ModelConfig& config) {
  const SequenceBatching& sequences = *config.sequences;
  const bool batches = config.max_batch > 0;
  std::string out = StrCat(
      "{\"max_sequence_idle_microseconds\":", sequences.idle_us, ",\"",
      sequences.oldest ? StrCat("oldest\":{\"max_candidate_sequences\":", sequences.candidates, ",")
                       : "direct\":{",
      "\"max_queue_delay_microseconds\":", sequences.delay_us, "},\"control_input\":",
      Array(sequences.controls,
            [](const SequenceControl& control) {
              constexpr std::string_view kKinds[] = {"START", "END", "READY", "CORRID"};
              return StrCat("{\"name\":", JsonQuote(control.spec.name),
                            ",\"control\":[{\"kind\":\"CONTROL_SEQUENCE_",
                            kKinds[static_cast<int>(control.kind)], "\"}]}");
            }),
      ",\"state\":", Array(sequences.states, [&](const SequenceState& state) {
        ShapeView dims = state.in.shape;
        if (batches && !dims.empty()) dims = dims.subspan(1);
        return StrCat("{\"input_name\":", JsonQuote(state.in.name),
                      ",\"output_name\":", JsonQuote(state.out.name), ",\"data_type\":\"TYPE_",
                      DatatypeOf(state.in), "\",\"dims\":", Numbers(dims), "}");
      }));
  return out + "}";
}

std::string MapJson(const std::map<std::string, std::string>& map) {
  std::string out = "{";
  for (const auto& [name, value] : map) {
    StrAppend(&out, out.size() > 1 ? "," : "", JsonQuote(name), ":", JsonQuote(value));
  }
  return out + "}";
}

std::string StepJson(const EnsembleStep& step) {
  return StrCat("{\"model_name\":", JsonQuote(step.model), ",\"model_version\":", step.version,
                ",\"input_map\":", MapJson(step.inputs), ",\"output_map\":", MapJson(step.outputs),
                "}");
}

std::string GroupsJson(const ModelConfig& config) {
  constexpr std::string_view kKinds[] = {"AUTO", "GPU", "CPU", "MODEL"};
  std::string out = "[";
  for (const InstanceGroup& group : config.groups) {
    const std::string name = StrCat(config.name, "_", &group - config.groups.data());
    StrAppend(&out, out.size() > 1 ? "," : "", "{\"name\":", JsonQuote(name), ",\"kind\":\"KIND_",
              kKinds[static_cast<int>(group.kind)], "\",\"count\":", group.count,
              ",\"gpus\":", Numbers(group.gpus), ",\"devices\":",
              Array(group.devices, [](const std::string& device) { return JsonQuote(device); }),
              "}");
  }
  return out + "]";
}

std::string VersionsJson(const VersionPolicy& policy) {
  switch (policy.kind) {
    case VersionPolicy::Kind::kAll:
      return "{\"all\":{}}";
    case VersionPolicy::Kind::kSpecific:
      return StrCat("{\"specific\":{\"versions\":", Numbers(policy.versions), "}}");
    case VersionPolicy::Kind::kLatest:
      break;
  }
  return StrCat("{\"latest\":{\"num_versions\":", policy.latest, "}}");
}

std::string SumJson(std::string_view name, const DurationSum& sum) {
  return StrCat("\"", name, "\":{\"count\":", sum.count, ",\"ns\":", sum.ns, "}");
}

}  // namespace

std::string ServerJson(const std::vector<std::string_view>& extensions) {
  return StrCat("{\"name\":\"telegrad\",\"version\":\"", Version(), "\",\"extensions\":",
                Array(extensions, [](std::string_view name) { return JsonQuote(name); }), "}");
}

std::string MetadataJson(const ServedModel& model, const std::vector<std::string>& versions) {
  const ModelConfig& config = model.config();
  return StrCat("{\"name\":", JsonQuote(config.name),
                ",\"versions\":", Array(versions, [](const auto& v) { return JsonQuote(v); }),
                ",\"platform\":\"", config.format_info().platform,
                "\",\"inputs\":", Array(config.inputs, TensorJson),
                ",\"outputs\":", Array(config.outputs, TensorJson), "}");
}

std::string ConfigJson(const ModelConfig& config) {
  const bool batches = config.max_batch > 0;
  const auto io = [&](const TensorSpec& spec) { return IoJson(spec, batches); };
  std::string out =
      StrCat("{\"name\":", JsonQuote(config.name), ",\"platform\":\"",
             config.format_info().platform, "\",\"backend\":\"", config.format_info().backend,
             "\",\"version_policy\":", VersionsJson(config.versions),
             ",\"max_batch_size\":", config.max_batch, ",\"input\":", Array(config.inputs, io),
             ",\"output\":", Array(config.outputs, io), ",\"instance_group\":", GroupsJson(config),
             ",\"default_model_filename\":", JsonQuote(config.file));
  if (!config.steps.empty()) {
    StrAppend(&out, ",\"ensemble_scheduling\":{\"step\":", Array(config.steps, StepJson), "}");
  }
  if (!config.parameters.empty()) {
    StrAppend(&out, ",\"parameters\":{");
    for (const auto& [name, value] : config.parameters) {
      StrAppend(&out, out.ends_with('{') ? "" : ",", JsonQuote(name),
                ":{\"string_value\":", JsonQuote(value), "}");
    }
    out += "}";
  }
  if (config.cached) out += ",\"response_cache\":{\"enable\":true}";
  if (config.sequences) StrAppend(&out, ",\"sequence_batching\":", SequencesJson(config));
  if (config.batching && config.steps.empty() && !config.sequences) {
    const DynamicBatching& batching = *config.batching;
    StrAppend(&out, ",\"dynamic_batching\":{\"preferred_batch_size\":", Numbers(batching.preferred),
              ",\"max_queue_delay_microseconds\":", batching.delay_us,
              ",\"priority_levels\":", batching.levels,
              ",\"default_priority_level\":", batching.default_level,
              ",\"default_queue_policy\":", PolicyJson(batching.policy), "}");
  }
  return out + "}";
}

std::string StatisticsJson(ServedModel& model) {
  const StatisticsSnapshot s = model.statistics().Snapshot();
  return StrCat(
      "{\"name\":", JsonQuote(model.config().name), ",\"version\":", JsonQuote(model.version()),
      ",\"last_inference\":", s.last_ms, ",\"inference_count\":", s.inferences,
      ",\"execution_count\":", s.executions, ",\"inference_stats\":{",
      SumJson("success", s.success), ",", SumJson("fail", s.fail), ",", SumJson("queue", s.queue),
      ",", SumJson("compute_input", s.input), ",", SumJson("compute_infer", s.infer), ",",
      SumJson("compute_output", s.output), ",", SumJson("cache_hit", s.hit), ",",
      SumJson("cache_miss", s.miss), "},\"batch_stats\":",
      Array(s.batches,
            [](const auto& batch) {
              const auto& [size, sums] = batch;
              return StrCat("{\"batch_size\":", size, ",", SumJson("compute_input", sums.input),
                            ",", SumJson("compute_infer", sums.infer), ",",
                            SumJson("compute_output", sums.output), "}");
            }),
      ",\"memory_usage\":",
      Array(model.WeightBytesByDevice(),
            [](const auto& of) {
              return StrCat("{\"type\":", JsonQuote(of.first),
                            ",\"id\":0,\"byte_size\":", of.second, "}");
            }),
      "}");
}

std::string IndexJson(const std::vector<IndexRow>& rows) {
  return Array(rows, [](const IndexRow& row) {
    std::string out = StrCat("{\"name\":", JsonQuote(row.name));
    if (!row.version.empty()) StrAppend(&out, ",\"version\":", JsonQuote(row.version));
    StrAppend(&out, ",\"state\":\"", row.state, "\"");
    if (!row.reason.empty()) {
      StrAppend(&out, ",\"reason\":", JsonQuote(row.reason));
    }
    return out + "}";
  });
}

}  // namespace telegrad
