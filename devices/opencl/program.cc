// Builds the kernel from its binary, checks the number of its arguments and its work-group size,
// and sets the arguments of a launch.
#include "devices/opencl/program.h"

#include <algorithm>
#include <utility>

#include "engine/base/checked.h"
#include "engine/base/status.h"
#include "engine/opencl/build.h"

namespace telegrad::opencl {

absl::StatusOr<std::shared_ptr<OpenClProgram>> OpenClProgram::Load(std::shared_ptr<Context> context,
                                                                   const ProgramImage& image) {
  TG_RETURN_IF_ERROR(context->health());
  std::shared_ptr<OpenClProgram> out(new OpenClProgram(std::move(context)));
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
  if (parameters % 2 != 1) {
    return InvalidArgument("it takes ", parameters,
                           " parameters, expected two for each buffer and the first iteration");
  }
  buffers_ = parameters / 2;
  size_t most = 0;
  TG_RETURN_IF_ERROR(TG_CL_IN(*context_, clGetKernelWorkGroupInfo, kernel_, context_->device(),
                              CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof(group_), group_.data(),
                              nullptr));
  TG_RETURN_IF_ERROR(TG_CL_IN(*context_, clGetKernelWorkGroupInfo, kernel_, context_->device(),
                              CL_KERNEL_WORK_GROUP_SIZE, sizeof(most), &most, nullptr));
  int64_t threads = 1;
  for (const size_t size : group_) {
    if (size < 1 || size > INT32_MAX ||
        !CheckedMul(threads, static_cast<int64_t>(size), &threads)) {
      return InvalidArgument("it does not say how many threads its workgroups have");
    }
  }
  if (threads != image.group_threads) {
    return InvalidArgument("its workgroups have ", threads, " threads, expected ",
                           image.group_threads);
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

absl::Status OpenClProgram::Enqueue(const Launch& launch, const cl_mem* memories,
                                    const int64_t* offsets, cl_command_queue queue) {
  if (launch.iterations == 0) return absl::OkStatus();
  int64_t width = 0;
  if (!CheckedMul(launch.iterations, static_cast<int64_t>(group_[0]), &width)) {
    return InvalidArgument(launch.name, ": ", launch.iterations, " workgroups");
  }
  for (cl_uint i = 0; i < static_cast<cl_uint>(buffers_); ++i) {
    const auto offset = static_cast<cl_ulong>(offsets[i]);
    TG_RETURN_IF_ERROR(
        TG_CL_IN(*context_, clSetKernelArg, kernel_, 2 * i, sizeof(cl_mem), &memories[i]));
    TG_RETURN_IF_ERROR(
        TG_CL_IN(*context_, clSetKernelArg, kernel_, 2 * i + 1, sizeof(offset), &offset));
  }
  const auto begin = static_cast<cl_ulong>(launch.begin);
  TG_RETURN_IF_ERROR(TG_CL_IN(*context_, clSetKernelArg, kernel_,
                              static_cast<cl_uint>(2 * buffers_), sizeof(begin), &begin));
  const size_t global[] = {static_cast<size_t>(width), group_[1], group_[2]};
  return TG_CL_IN(*context_, clEnqueueNDRangeKernel, queue, kernel_, 3, nullptr, global,
                  group_.data(), 0, nullptr, nullptr);
}

}  // namespace telegrad::opencl
