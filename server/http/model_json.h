// Metadata, configuration, statistics and the index of models as JSON.
#pragma once

#include <string>

#include "server/serving/model_server.h"

namespace telegrad {

std::string ServerJson(const std::vector<std::string_view>& extensions);
std::string MetadataJson(const ServedModel& model, const std::vector<std::string>& versions);
std::string ConfigJson(const ModelConfig& config);
// A member of "model_stats".
std::string StatisticsJson(ServedModel& model);
std::string IndexJson(const std::vector<IndexRow>& rows);

}  // namespace telegrad
