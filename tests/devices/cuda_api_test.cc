// Our declarations of NVIDIA's driver API against a real cuda.h, where there is one: a translation
// unit that includes both must compile.
#include "devices/cuda/cuda_api.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/base/strings.h"
#include "tests/devices/fixture.h"

namespace telegrad {
namespace {

std::string FindCudaInclude() {
  const char* named = std::getenv("TELEGRAD_CUDA_INCLUDE");
  for (const std::string& folder :
       {std::string(named != nullptr ? named : ""), std::string("/usr/local/cuda/include")}) {
    if (!folder.empty() && std::filesystem::exists(folder + "/cuda.h")) return folder;
  }
  return "";
}

// That `name` has the same value in both.
std::string SameValue(const std::string& name) {
  return StrCat("static_assert(int(::", name, ") == int(telegrad::cuda::", name, "), \"", name,
                "\");\n");
}
std::string SameMember(const std::string& type, const std::string& member) {
  const std::string real = "::" + type, ours = "telegrad::cuda::" + type;
  return StrCat("static_assert(offsetof(", real, ", ", member, ") == offsetof(", ours, ", ", member,
                ") && sizeof(", real, "::", member, ") == sizeof(", ours, "::", member, "), \"",
                type, ".", member, "\");\n");
}
std::string SameSize(const std::string& type) {
  return StrCat("static_assert(sizeof(::", type, ") == sizeof(telegrad::cuda::", type, "), \"",
                type, "\");\n");
}

// The names of a header's enumerators and members, read from its text.
std::vector<std::string> WordsOf(const std::string& path, const std::string& begin,
                                 const std::string& end, const std::string& prefix) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  const std::string all = text.str();
  const size_t from = all.find(begin);
  const std::string part = all.substr(from, all.find(end, from) - from);
  std::vector<std::string> out;
  std::string word;
  for (const char c : part + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
      word += c;
      continue;
    }
    if (word.starts_with(prefix) && word != "CUDA_KERNEL_NODE_PARAMS_v2" &&
        word != "CUDA_MEMCPY3D_v2") {
      out.push_back(word);
    }
    word.clear();
  }
  return out;
}

TEST(CudaApi, IsWhatCudaHSays) {
  const std::string include = FindCudaInclude();
  if (include.empty()) {
    GTEST_SKIP() << "no cuda.h: neither TELEGRAD_CUDA_INCLUDE nor /usr/local/cuda/include has one";
  }
  const std::string header = "devices/cuda/cuda_api.h";
  std::string code = "#include <cstddef>\n#include <cuda.h>\n#include \"" + header + "\"\n";
  size_t compared = 0;
  for (const char* prefix : {"CUDA_SUCCESS", "CUDA_ERROR_", "CU_"}) {
    for (const std::string& name : WordsOf(header, "enum CudaResult", "kMemHostAlloc", prefix)) {
      code += SameValue(name);
      ++compared;
    }
  }
  EXPECT_GT(compared, 40u);
  code += "static_assert(CU_MEMHOSTALLOC_PORTABLE == telegrad::cuda::kMemHostAllocPortable);\n";
  code += "static_assert(CU_MEMHOSTALLOC_DEVICEMAP == telegrad::cuda::kMemHostAllocDeviceMap);\n";
  for (const char* type :
       {"CUdevice", "CUdeviceptr", "CUresult", "CUdevice_attribute", "CUfunction_attribute",
        "CUjit_option", "CUmemorytype", "CUmemGenericAllocationHandle", "CUmemAllocationProp",
        "CUmemAccessDesc", "CUmemAllocationGranularity_flags", "CUDA_KERNEL_NODE_PARAMS_v2",
        "CUDA_MEMCPY3D_v2", "CUtensorMap", "CUtensorMapDataType", "CUtensorMapInterleave",
        "CUtensorMapSwizzle", "CUtensorMapL2promotion", "CUtensorMapFloatOOBfill"}) {
    code += SameSize(type);
  }
  code += "static_assert(alignof(::CUtensorMap) <= alignof(telegrad::cuda::CUtensorMap));\n";
  for (const char* member :
       {"func", "gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ",
        "sharedMemBytes", "kernelParams", "extra", "kern", "ctx"}) {
    code += SameMember("CUDA_KERNEL_NODE_PARAMS_v2", member);
  }
  for (const char* member :
       {"srcXInBytes",   "srcY",        "srcZ",         "srcLOD",    "srcMemoryType",
        "srcHost",       "srcDevice",   "srcArray",     "reserved0", "srcPitch",
        "srcHeight",     "dstXInBytes", "dstY",         "dstZ",      "dstLOD",
        "dstMemoryType", "dstHost",     "dstDevice",    "dstArray",  "reserved1",
        "dstPitch",      "dstHeight",   "WidthInBytes", "Height",    "Depth"}) {
    code += SameMember("CUDA_MEMCPY3D_v2", member);
  }
  // The types that drivers have in common have the values that are used, and names of their own.
  code +=
      "constexpr telegrad::stream::MemoryProperties kMemory;\n"
      "static_assert(kMemory.type == CU_MEM_ALLOCATION_TYPE_PINNED);\n"
      "static_assert(kMemory.handle_types == CU_MEM_HANDLE_TYPE_NONE);\n"
      "static_assert(kMemory.location.type == CU_MEM_LOCATION_TYPE_DEVICE);\n"
      "static_assert(telegrad::stream::MemoryAccess().flags == "
      "CU_MEM_ACCESS_FLAGS_PROT_READWRITE);\n"
      "static_assert(telegrad::stream::kLeastGranularity == CU_MEM_ALLOC_GRANULARITY_MINIMUM);\n"
      "static_assert(offsetof(CUmemAllocationProp, location) =="
      " offsetof(telegrad::stream::MemoryProperties, location));\n"
      "static_assert(offsetof(CUmemLocation, id) =="
      " offsetof(telegrad::stream::MemoryLocation, device));\n"
      "static_assert(offsetof(CUmemAccessDesc, flags) =="
      " offsetof(telegrad::stream::MemoryAccess, flags));\n";
  // Each function has as many parameters of the same sizes; which are pointers, too.
  code +=
      "#include <type_traits>\n"
      "template <typename T> constexpr int kForm = int(sizeof(T)) + (std::is_pointer_v<T> ? 100 : "
      "0)"
      ";\n"
      "template <typename... A> struct Forms {};\n"
      "template <typename F> struct FormsOf;\n"
      "template <int... N> struct List {};\n"
      "template <typename R, typename... A> struct FormsOf<R(A...)> {"
      " using Type = List<kForm<A>...>; };\n"
      "namespace telegrad::cuda {\n"
      "#define CUDA_SYMBOL(name, version, parameters) CUresult our_##name parameters;\n"
      "#include \"devices/cuda/symbols.def\"\n"
      "#undef CUDA_SYMBOL\n}\n"
      "#define CUDA_SYMBOL(name, version, parameters)"
      " static_assert(std::is_same_v<FormsOf<decltype(::name)>::Type,"
      " FormsOf<decltype(telegrad::cuda::our_##name)>::Type>, #name);\n"
      "#include \"devices/cuda/symbols.def\"\n";
  const TemporaryDirectory directory;
  const std::string source = directory.path() / "compare.cc", log = directory.path() / "log";
  std::ofstream(source) << code;
  const std::string command =
      StrCat(TELEGRAD_CXX, " -std=c++20 -fsyntax-only -I", include, " -I. ", source, " 2> ", log);
  const int result = std::system(command.c_str());
  std::stringstream said;
  said << std::ifstream(log).rdbuf();
  EXPECT_EQ(result, 0) << said.str();
}

}  // namespace
}  // namespace telegrad
