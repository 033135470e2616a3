// Text of configurations of ensembles.
#pragma once

#include <string>

#include "engine/base/status.h"

namespace telegrad {

// "{ key: 'x' value: 'a' }" of "x" and "a", for a map of a configuration.
inline std::string Pair(const std::string& field, const std::string& key,
                        const std::string& value) {
  return StrCat(field, " { key: '", key, "' value: '", value, "' } ");
}

// A step whose model has the input x and the output y.
inline std::string Step(const std::string& model, const std::string& x, const std::string& y) {
  return StrCat("step { model_name: '", model, "' model_version: -1 ", Pair("input_map", "x", x),
                Pair("output_map", "y", y), "} ");
}

// An ensemble from `in` to `out`, both of that type and of those dimensions. `more`: of fields.
inline std::string EnsembleConfig(const std::string& type, const std::string& dims,
                                  const std::string& steps, const std::string& more = "") {
  return StrCat("platform: 'ensemble' ", more, " input { name: 'in' data_type: ", type,
                " dims: ", dims, " } output { name: 'out' data_type: ", type, " dims: ", dims,
                " } ensemble_scheduling { ", steps, "}");
}

}  // namespace telegrad
