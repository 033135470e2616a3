// The part of the OpenCL 1.2 API that Telegrad uses, declared here so that no SDK is needed to
// build. Names, values and layouts are Khronos' (the OpenCL API Specification, its cl.h) and keep
// its spelling, so that they can be looked up there; tests/opencl/opencl_api_test.cc compares them
// with a real cl.h where there is one. The functions are in symbols.def, the errors in errors.def.
#pragma once

#include <cstddef>
#include <cstdint>

namespace telegrad::opencl {

using cl_int = int32_t;
using cl_uint = uint32_t;
using cl_ulong = uint64_t;
using cl_bool = cl_uint;
using cl_bitfield = cl_ulong;
using cl_platform_id = struct _cl_platform_id*;
using cl_device_id = struct _cl_device_id*;
using cl_context = struct _cl_context*;
using cl_command_queue = struct _cl_command_queue*;
using cl_mem = struct _cl_mem*;
using cl_program = struct _cl_program*;
using cl_kernel = struct _cl_kernel*;
using cl_event = struct _cl_event*;
using cl_context_properties = intptr_t;

using ContextCallback = void (*)(const char* what, const void* info, size_t size, void* data);
using ProgramCallback = void (*)(cl_program program, void* data);
using EventCallback = void (*)(cl_event event, cl_int status, void* data);

enum : cl_int {
#define CL_ERROR(name, value, code) name = value,
#include "engine/opencl/errors.def"
#undef CL_ERROR
};

enum : cl_bool { CL_FALSE = 0, CL_TRUE = 1 };

// cl_device_type
enum : cl_bitfield {
  CL_DEVICE_TYPE_CPU = 1 << 1,
  CL_DEVICE_TYPE_GPU = 1 << 2,
  CL_DEVICE_TYPE_ALL = 0xFFFFFFFF,
};

// cl_platform_info
enum : cl_uint { CL_PLATFORM_VERSION = 0x0901, CL_PLATFORM_NAME = 0x0902 };

// cl_device_info
enum : cl_uint {
  CL_DEVICE_TYPE = 0x1000,
  CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
  CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS = 0x1003,
  CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
  CL_DEVICE_MAX_WORK_ITEM_SIZES = 0x1005,
  CL_DEVICE_MAX_CLOCK_FREQUENCY = 0x100C,  // MHz
  CL_DEVICE_ADDRESS_BITS = 0x100D,
  CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
  CL_DEVICE_MEM_BASE_ADDR_ALIGN = 0x1019,  // bits
  CL_DEVICE_SINGLE_FP_CONFIG = 0x101B,
  CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
  CL_DEVICE_LOCAL_MEM_TYPE = 0x1022,
  CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
  CL_DEVICE_ENDIAN_LITTLE = 0x1026,
  CL_DEVICE_AVAILABLE = 0x1027,
  CL_DEVICE_COMPILER_AVAILABLE = 0x1028,
  CL_DEVICE_NAME = 0x102B,
  CL_DRIVER_VERSION = 0x102D,
  CL_DEVICE_VERSION = 0x102F,
  CL_DEVICE_DOUBLE_FP_CONFIG = 0x1032,
  CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT = 0x103A,
};

// cl_device_fp_config
enum : cl_bitfield {
  CL_FP_DENORM = 1 << 0,
  CL_FP_INF_NAN = 1 << 1,
  CL_FP_ROUND_TO_NEAREST = 1 << 2,
  CL_FP_FMA = 1 << 5,
  CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT = 1 << 7,
};

enum : cl_uint { CL_LOCAL = 1, CL_GLOBAL = 2 };  // cl_device_local_mem_type

// cl_mem_flags, cl_command_queue_properties
enum : cl_bitfield { CL_MEM_READ_WRITE = 1 << 0, CL_MEM_ALLOC_HOST_PTR = 1 << 4 };
enum : cl_bitfield { CL_MAP_READ = 1 << 0, CL_MAP_WRITE = 1 << 1 };
enum : cl_bitfield { CL_QUEUE_PROFILING_ENABLE = 1 << 1 };

enum : cl_uint { CL_PROGRAM_BINARY_SIZES = 0x1165, CL_PROGRAM_BINARIES = 0x1166 };
enum : cl_uint { CL_PROGRAM_BUILD_LOG = 0x1183 };
enum : cl_uint { CL_KERNEL_NUM_ARGS = 0x1191 };
enum : cl_uint { CL_KERNEL_WORK_GROUP_SIZE = 0x11B0, CL_KERNEL_COMPILE_WORK_GROUP_SIZE = 0x11B1 };
enum : cl_uint { CL_CONTEXT_PLATFORM = 0x1084 };  // cl_context_properties

enum : cl_int { CL_COMPLETE = 0x0 };  // an execution status; below 0: an error

}  // namespace telegrad::opencl
