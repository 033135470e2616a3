// Builds the kernel from its binary, checks the number of its arguments and its work-group size,
// and sets the arguments of a launch.
#include "devices/opencl/program.h"

#include <algorithm>
#include <array>
#include <utility>

#include "devices/api/check_tensor_map.h"
#include "engine/base/checked.h"
#include "engine/base/status.h"
#include "engine/opencl/build.h"

namespace telegrad::opencl {

absl::StatusOr<std::shared_ptr<OpenClProgram>> OpenClProgram::Load(std::shared_ptr<Context> context,
                                                                   const ProgramImage& image) {
  TG_RETURN_IF_ERROR(context->health());
  TG_RETURN_IF_ERROR(RefuseTensorMaps(image, context->name(), "OpenCL C has none"));
  std::shared_ptr<OpenClProgram> out(new OpenClProgram(image.signature, std::move(context)));
  absl::Status status = out->Build(image);
  if (status.ok()) status = out->Prepare(image);
  if (status.ok()) return out;
  return absl::Status(status.code(),
                      StrCat("the program ", image.name, ": ", ToStd(status.message())));
}

absl::Status OpenClProgram::Build(const ProgramImage& image) {
  const cl_device_id device = context_->device();
  const size_t length = image.binary.size();
  const auto* bytes = reinterpret_cast<const unsigned char*>(image.binary.data());
  if (length == 0) return InvalidArgument("an empty binary");
  cl_int of_binary = CL_SUCCESS, error = CL_SUCCESS;
  program_ = context_->api().clCreateProgramWithBinary(context_->handle(), 1, &device, &length,
                                                       &bytes, &of_binary, &error);
  // That the bytes are no binary of this driver, it says as an invalid value.
  absl::Status status = context_->Check("clCreateProgramWithBinary", error);
  if (status.ok()) status = context_->Check("clCreateProgramWithBinary", of_binary);
  if (error == CL_INVALID_VALUE || of_binary == CL_INVALID_VALUE) {
    return InvalidArgument(ToStd(status.message()));
  }
  TG_RETURN_IF_ERROR(status);
  status =
      TG_CL_IN(*context_, clBuildProgram, program_, 1, &device, kBuildOptions, nullptr, nullptr);
  if (status.ok()) return status;
  return absl::Status(status.code(), StrCat(ToStd(status.message()), ": ",
                                            LogOf(context_->library(), program_, device)));
}

absl::Status OpenClProgram::Prepare(const ProgramImage& image) {
  cl_int error = CL_SUCCESS;
  kernel_ = context_->api().clCreateKernel(program_, image.name.c_str(), &error);
  TG_RETURN_IF_ERROR(context_->Check("clCreateKernel", error));
  cl_uint parameters = 0;
  TG_RETURN_IF_ERROR(TG_CL_IN(*context_, clGetKernelInfo, kernel_, CL_KERNEL_NUM_ARGS,
                              sizeof(parameters), &parameters, nullptr));
  size_t expected = 0;
  for (const ParameterKind kind : image.signature.parameters) {
    expected += kind == ParameterKind::kBuffer ? 2 : 1;
  }
  if (parameters != expected) {
    return InvalidArgument("it takes ", parameters, " arguments, its signature says ", expected);
  }
  std::array<size_t, 3> group{};
  size_t most = 0;
  TG_RETURN_IF_ERROR(TG_CL_IN(*context_, clGetKernelWorkGroupInfo, kernel_, context_->device(),
                              CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof(group), group.data(),
                              nullptr));
  TG_RETURN_IF_ERROR(TG_CL_IN(*context_, clGetKernelWorkGroupInfo, kernel_, context_->device(),
                              CL_KERNEL_WORK_GROUP_SIZE, sizeof(most), &most, nullptr));
  int64_t threads = 1;
  for (const size_t size : group) {
    if (size < 1 || size > INT32_MAX ||
        !CheckedMul(threads, static_cast<int64_t>(size), &threads)) {
      return InvalidArgument("it does not say how many threads its workgroups have");
    }
  }
  const GridSize& said = image.signature.group;
  if (said != GridSize{static_cast<int64_t>(group[0]), static_cast<int64_t>(group[1]),
                       static_cast<int64_t>(group[2])}) {
    return InvalidArgument("its workgroups have ", group[0], " x ", group[1], " x ", group[2],
                           " threads, its signature says ", said.x, " x ", said.y, " x ", said.z);
  }
  if (static_cast<size_t>(threads) > most) {
    return InvalidArgument(threads, " threads in a workgroup; the device runs at most ", most,
                           " of this program");
  }
  return absl::OkStatus();
}

OpenClProgram::~OpenClProgram() {
  if (context_->stuck()) return;
  if (kernel_ != nullptr) context_->api().clReleaseKernel(kernel_);
  if (program_ != nullptr) context_->api().clReleaseProgram(program_);
}

template <typename T>
absl::Status OpenClProgram::SetArgument(cl_uint* index, const T& value) {
  return TG_CL_IN(*context_, clSetKernelArg, kernel_, (*index)++, sizeof(value), &value);
}

absl::Status OpenClProgram::Enqueue(const Launch& launch, std::span<const Word> words,
                                    cl_command_queue queue) {
  size_t global[3], group[3];
  const int64_t grid[] = {launch.grid.x, launch.grid.y, launch.grid.z};
  const int64_t threads[] = {launch.group.x, launch.group.y, launch.group.z};
  for (size_t i = 0; i < 3; ++i) {
    int64_t all = 0;
    if (!CheckedMul(grid[i], threads[i], &all)) {
      return InvalidArgument(launch.name, ": ", grid[i], " workgroups");
    }
    if (all == 0) return absl::OkStatus();
    global[i] = static_cast<size_t>(all);
    group[i] = static_cast<size_t>(threads[i]);
  }
  cl_uint index = 0;
  size_t next = 0;
  for (const ParameterKind kind : signature()->parameters) {
    if (kind == ParameterKind::kBegin) {
      TG_RETURN_IF_ERROR(SetArgument(&index, static_cast<cl_ulong>(launch.begin)));
      continue;
    }
    const Word& word = words[next++];
    if (kind == ParameterKind::kBuffer) TG_RETURN_IF_ERROR(SetArgument(&index, word.memory));
    TG_RETURN_IF_ERROR(kind == ParameterKind::kScalar32
                           ? SetArgument(&index, static_cast<cl_uint>(word.bits))
                           : SetArgument(&index, static_cast<cl_ulong>(word.bits)));
  }
  return TG_CL_IN(*context_, clEnqueueNDRangeKernel, queue, kernel_, 3, nullptr, global, group, 0,
                  nullptr, nullptr);
}

}  // namespace telegrad::opencl
