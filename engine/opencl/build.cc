#include "engine/opencl/build.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>

#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/opencl/device_facts.h"

namespace telegrad::opencl {
namespace {

constexpr size_t kMaxLog = 4096;
constexpr size_t kMaxBinary = size_t{64} << 20;

// A device to build for, which stays open: drivers take most of a second to start.
struct Builder {
  std::shared_ptr<const Library> library;
  cl_device_id device = nullptr;
  cl_context context = nullptr;
};

absl::StatusOr<Builder> OpenBuilder(const std::string& path, const std::string& wanted) {
  TG_ASSIGN_OR_RETURN(auto library, Library::Open(path));
  TG_ASSIGN_OR_RETURN(const Listing listing, ListDevices(*library));
  for (const PlatformDevice& device : listing.devices) {
    const auto facts = ReadFacts(*library, device);
    if (!facts.ok() || facts->target.cpu != wanted) continue;
    const cl_context_properties properties[] = {
        CL_CONTEXT_PLATFORM, reinterpret_cast<cl_context_properties>(device.platform), 0};
    cl_int error = CL_SUCCESS;
    const cl_context context =
        library->api().clCreateContext(properties, 1, &device.device, nullptr, nullptr, &error);
    TG_RETURN_IF_ERROR(Check("clCreateContext", error));
    return Builder{std::move(library), device.device, context};
  }
  return NotFound("the compiler sees no OpenCL device ", wanted);
}

absl::StatusOr<Builder> BuilderFor(const std::string& path, const std::string& wanted) {
  struct Builders {
    Mutex mutex;
    std::map<std::pair<std::string, std::string>, Builder> open TG_GUARDED_BY(mutex);
  };
  static auto* const builders = new Builders;
  const MutexLock lock(builders->mutex);
  const auto found = builders->open.find({path, wanted});
  if (found != builders->open.end()) return found->second;
  TG_ASSIGN_OR_RETURN(const Builder builder, OpenBuilder(path, wanted));
  return builders->open[{path, wanted}] = builder;
}

class Program {
 public:
  explicit Program(const Builder& builder) : builder_(builder), api_(builder.library->api()) {}
  ~Program() {
    if (kernel_ != nullptr) api_.clReleaseKernel(kernel_);
    if (program_ != nullptr) api_.clReleaseProgram(program_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  absl::Status Make(const std::string& source) {
    const char* text = source.data();
    const size_t length = source.size();
    cl_int error = CL_SUCCESS;
    program_ = api_.clCreateProgramWithSource(builder_.context, 1, &text, &length, &error);
    TG_RETURN_IF_ERROR(Check("clCreateProgramWithSource", error));
    const absl::Status built =
        TG_CL(api_, clBuildProgram, program_, 1, &builder_.device, kBuildOptions, nullptr, nullptr);
    if (built.ok()) return built;
    return absl::Status(built.code(), StrCat(ToStd(built.message()), ": ",
                                             LogOf(*builder_.library, program_, builder_.device)));
  }

  absl::StatusOr<GridSize> Group(const std::string& name) {
    cl_int error = CL_SUCCESS;
    kernel_ = api_.clCreateKernel(program_, name.c_str(), &error);
    TG_RETURN_IF_ERROR(Check("clCreateKernel", error));
    std::array<size_t, 3> size{};
    TG_RETURN_IF_ERROR(TG_CL(api_, clGetKernelWorkGroupInfo, kernel_, builder_.device,
                             CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof(size), size.data(),
                             nullptr));
    const auto threads = [](size_t n) {
      return static_cast<int64_t>(std::clamp<size_t>(n, 1, 1024));
    };
    return GridSize{threads(size[0]), threads(size[1]), threads(size[2])};
  }

  absl::StatusOr<std::string> Binary() {
    size_t size = 0;
    TG_RETURN_IF_ERROR(TG_CL(api_, clGetProgramInfo, program_, CL_PROGRAM_BINARY_SIZES,
                             sizeof(size), &size, nullptr));
    if (size == 0 || size > kMaxBinary) {
      return Internal("the driver made a binary of ", size, " bytes; expected 1 to ", kMaxBinary);
    }
    std::string binary(size, '\0');
    auto* bytes = reinterpret_cast<unsigned char*>(binary.data());
    TG_RETURN_IF_ERROR(TG_CL(api_, clGetProgramInfo, program_, CL_PROGRAM_BINARIES, sizeof(bytes),
                             &bytes, nullptr));
    return binary;
  }

 private:
  const Builder& builder_;
  const Symbols& api_;
  cl_program program_ = nullptr;
  cl_kernel kernel_ = nullptr;
};

}  // namespace

std::string LogOf(const Library& library, cl_program program, cl_device_id device) {
  size_t size = 0;
  const Symbols& api = library.api();
  api.clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
  if (size == 0 || size > kMaxBinary) return "no log";
  std::string log(size, '\0');
  if (api.clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr) !=
      CL_SUCCESS) {
    return "no log";
  }
  log.resize(std::min({log.size(), log.find('\0'), kMaxLog}));
  return log;
}

absl::StatusOr<Built> Build(const std::string& library, const std::string& source,
                            const std::string& name, const Target& target) {
  TG_ASSIGN_OR_RETURN(const Builder builder, BuilderFor(library, target.cpu));
  // Not every driver's compiler bears two threads, though all should: Oclgrind's crashes.
  static auto* const compiler = new Mutex;
  const MutexLock lock(*compiler);
  Program program(builder);
  const auto build = [&]() -> absl::StatusOr<Built> {
    TG_RETURN_IF_ERROR(program.Make(source));
    Built out;
    TG_ASSIGN_OR_RETURN(out.group, program.Group(name));
    TG_ASSIGN_OR_RETURN(out.binary, program.Binary());
    return out;
  };
  auto built = build();
  if (built.ok()) return built;
  const auto code =
      absl::IsInvalidArgument(built.status()) ? absl::StatusCode::kInternal : built.status().code();
  return absl::Status(code, StrCat("kernel ", name, ": ", ToStd(built.status().message())));
}

}  // namespace telegrad::opencl
