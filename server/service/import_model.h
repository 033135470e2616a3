// The Import operation on the wire, and the readers of model files behind it.
#pragma once

#include <memory>

#include "engine/frontend/onnx/import.h"
#include "server/operations/import.h"
#include "server/serving/form.h"
#include "telegrad/v1/compute.pb.h"

namespace telegrad {

// Takes what is large out of `import`. A format that nobody knows is the operation's error.
ImportOp ToImport(v1::Import& import, std::unique_ptr<Payload> payload);

// Reads a model file of that format. UNIMPLEMENTED for one that nobody knows.
absl::StatusOr<ImportedModel> ReadModelFile(const std::string& format, std::string_view file,
                                            const ImportOptions& options, Budget* budget);

// The same for models that are served, whose inputs and outputs may be strings, too.
absl::StatusOr<ReadForm> ReadServedModel(std::string_view file, const ImportOptions& options,
                                         Budget* budget);

void ToProto(const ImportResult& result, v1::ImportResult* out);

}  // namespace telegrad
