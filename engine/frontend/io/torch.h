// PyTorch's zip files (torch.save since version 1.6): a pickle that names tensors and describes
// them as views of storages, and a member for each storage's bytes. Tensors and the containers that
// hold them are read, nothing is executed. torch/serialization.py, torch/_utils.py.
#pragma once

#include "absl/status/statusor.h"
#include "engine/frontend/io/tensor_file.h"
#include "engine/frontend/io/zip.h"

namespace telegrad {

// Whether an archive is one of PyTorch's: some folder of it has a data.pkl.
bool IsTorch(const ZipDirectory& zip);

// A tensor's name is the way to it through dicts and lists, with dots between: "model.conv.weight",
// "optimizer.state.0.exp_avg". Numbers, bools and strings on such ways are metadata. A tensor that
// is not row-major (a transpose) has strides; one that repeats elements is UNIMPLEMENTED.
absl::StatusOr<TensorListing> ListTorch(const ByteSource& source, const ZipDirectory& zip);

}  // namespace telegrad
