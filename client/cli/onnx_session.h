// An ONNX model on a server, for any number of sets of inputs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/model_session.h"
#include "engine/frontend/onnx/external_data.h"

namespace telegrad::cli {

class OnnxSession final : public ModelSession {
 public:
  // Reads the file.
  static absl::StatusOr<std::unique_ptr<OnnxSession>> Open(const std::string& path,
                                                           ModelOptions options);

  const std::vector<onnx::ValueInfo>& inputs() const override { return inputs_; }
  const std::vector<onnx::ValueInfo>& outputs() const override { return model_.outputs; }

  // Imports the model for these inputs, unless the present plan fits them: they have the same types
  // and shapes and, where the plan depends on values, the same values. Needs no server.
  absl::Status Import(std::vector<onnx::OnnxData> inputs) override;
  absl::Status Send(RemoteSession* session) override;
  RemotePlan* plan() override { return plan_.get(); }
  absl::StatusOr<std::vector<onnx::OnnxData>> Results() override;
  int imports() const override { return imports_; }

 private:
  OnnxSession(std::string path, ModelOptions options)
      : path_(std::move(path)),
        server_import_(options.server_import),
        ranges_(std::move(options.ranges)),
        external_(std::make_shared<ExternalFiles>(FolderOf(path_))) {}
  absl::Status FindSizes(const std::vector<onnx::OnnxData>& inputs);
  bool IsRanged(size_t input) const;
  bool Fits(const std::vector<onnx::OnnxData>& inputs) const;
  absl::Status ImportOnServer(RemoteSession* session);
  absl::Status Set(const OnnxValue& value, const onnx::OnnxData& data);
  absl::StatusOr<onnx::OnnxData> Result(const OnnxValue& value);

  std::string path_;
  bool server_import_;
  std::map<std::string, DimRange, std::less<>> ranges_;
  std::map<std::string, int64_t, std::less<>> sizes_;  // of those, as the inputs have them
  std::shared_ptr<ExternalFiles> external_;
  std::shared_ptr<const std::string> file_;  // in which the model's weights lie
  onnx::Model model_;
  std::vector<onnx::ValueInfo> inputs_;
  ImportOptions options_;
  std::vector<onnx::OnnxData> bound_;
  std::optional<OnnxPlan> onnx_;  // unless the server imports it
  std::unique_ptr<RemotePlan> plan_;
  std::unique_ptr<RemoteState> state_;  // the weights, which imports share
  uint64_t file_handle_ = 0;            // of the file on the server that imports it
  // Of the present plan, whoever has imported it.
  std::vector<OnnxValue> in_, out_;
  std::vector<std::string> guards_;
  int imports_ = 0;
};

}  // namespace telegrad::cli
