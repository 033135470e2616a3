// Reads and writes tensors as .npy and .pb files, and compares outputs with expected values
// element by element.
#include "client/cli/onnx_data.h"

#include <algorithm>
#include <cmath>

#include "engine/base/files.h"
#include "engine/base/status.h"
#include "engine/frontend/io/byte_sink.h"
#include "engine/frontend/io/npy.h"
#include "engine/frontend/io/tensor_file.h"

namespace telegrad::cli {
namespace {

using onnx::OnnxData;

absl::Status CompareTensors(const HostTensor& want, const HostTensor& got,
                            const Tolerance& tolerance, double* worst) {
  if (want.dtype != got.dtype || want.shape != got.shape) {
    return FailedPrecondition("expected ", Name(want.dtype), " ", ToString(want.shape), ", got ",
                              Name(got.dtype), " ", ToString(got.shape));
  }
  if (want.bytes == got.bytes) return absl::OkStatus();
  const std::vector<double> a = want.AsDoubles(), b = got.AsDoubles();
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double error = std::abs(a[i] - b[i]);
    if (!IsFloat(want.dtype) || !(error <= tolerance.atol + tolerance.rtol * std::abs(a[i]))) {
      return FailedPrecondition("element ", i, " is ", b[i], ", expected ", a[i], " within rtol ",
                                tolerance.rtol, " and atol ", tolerance.atol);
    }
    *worst = std::max(*worst, error);
  }
  return absl::OkStatus();
}

absl::Status Compare(const OnnxData& want, const OnnxData& got, const Tolerance& tolerance,
                     double* worst) {
  if (want.kind != got.kind)
    return FailedPrecondition("the result is of another kind (tensor, sequence or optional)");
  if (want.kind == OnnxData::Kind::kTensor) {
    return CompareTensors(want.tensor, got.tensor, tolerance, worst);
  }
  if (want.strings != got.strings) return FailedPrecondition("the strings differ");
  if (want.elements.size() != got.elements.size()) {
    return FailedPrecondition("has ", got.elements.size(), " elements, expected ",
                              want.elements.size());
  }
  for (size_t i = 0; i < want.elements.size(); ++i) {
    TG_RETURN_IF_ERROR(Compare(want.elements[i], got.elements[i], tolerance, worst));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsWritable(std::string_view path) { return path.ends_with(".pb") || path.ends_with(".npy"); }

absl::StatusOr<OnnxData> ReadOnnxData(const std::string& path, const onnx::ValueInfo& type) {
  if (!path.ends_with(".pb")) {
    TG_ASSIGN_OR_RETURN(const auto file, OpenTensorFile(path));
    if (file->tensors().size() != 1) {
      return InvalidArgument(path, " holds ", file->tensors().size(), " tensors, expected one");
    }
    OnnxData out{.kind = OnnxData::Kind::kTensor};
    TG_ASSIGN_OR_RETURN(out.tensor, file->Load(file->tensors()[0]));
    return out;
  }
  TG_ASSIGN_OR_RETURN(const std::string file, ReadFile(path));
  absl::StatusOr<OnnxData> data = onnx::ReadDataFile(file, type);
  if (data.ok()) return data;
  return absl::Status(data.status().code(), StrCat(path, ": ", ToStd(data.status().message())));
}

absl::Status WriteOnnxData(const std::string& path, const OnnxData& data, std::string_view name) {
  if (data.kind != OnnxData::Kind::kTensor) {
    return Unimplemented(path, ": output '", name,
                         "' is not a tensor; only tensors can be written");
  }
  if (!path.ends_with(".pb")) {
    return SaveFile(path, [&](ByteSink* sink) { return WriteNpy(data.tensor, sink); });
  }
  TG_ASSIGN_OR_RETURN(const std::string file, onnx::WriteTensorFile(data.tensor, name));
  return SaveFile(path, [&](ByteSink* sink) { return sink->Append(file); });
}

absl::StatusOr<double> LargestError(const OnnxData& want, const OnnxData& got,
                                    const Tolerance& tolerance) {
  double worst = 0;
  TG_RETURN_IF_ERROR(Compare(want, got, tolerance, &worst));
  return worst;
}

std::vector<onnx::ValueInfo> CallerInputs(const onnx::Model& model) {
  std::vector<onnx::ValueInfo> out;
  for (const onnx::ValueInfo& input : model.inputs) {
    const auto same = [&](const onnx::TensorProto& t) { return t.name == input.name; };
    const auto sparse = [&](const onnx::SparseTensor& t) { return same(t.values); };
    if (std::ranges::none_of(model.initializers, same) &&
        std::ranges::none_of(model.sparse_initializers, sparse)) {
      out.push_back(input);
    }
  }
  return out;
}

absl::Status OfModelFile(const std::string& path, const absl::Status& status) {
  if (status.ok()) return status;
  const bool ours = absl::IsInvalidArgument(status) && !IsOptionsError(status);
  return absl::Status(ours ? absl::StatusCode::kFailedPrecondition : status.code(),
                      StrCat(path, ": ", ToStd(status.message())));
}

std::string FolderOf(const std::string& path) {
  const size_t at = path.rfind('/');
  return at == std::string::npos ? "." : path.substr(0, at + 1);
}

}  // namespace telegrad::cli
