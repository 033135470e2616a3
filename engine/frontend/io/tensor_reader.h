// Makes the reader of a tensor's content from where and how it lies in the file.
#pragma once

#include <memory>

#include "engine/frontend/io/tensor_file.h"

namespace telegrad {

// `entry` has been checked by TensorFile.
std::unique_ptr<TensorReader> MakeTensorReader(std::shared_ptr<const ByteSource> source,
                                               const TensorEntry& entry);

}  // namespace telegrad
