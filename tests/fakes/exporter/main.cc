// A process that shares memory of a GPU of a fake driver library, as a client of the daemon does:
// allocates, writes the handle to its output, and then does what the lines of its input say.
//   exporter LIBRARY cuda|hip BYTES
//   > handle HEX
//   < write OFFSET HEX       > ok
//   < read OFFSET BYTES      > HEX
// It ends with its input, and prints what the driver saw and no error code told.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

namespace {

struct Handle {
  char bytes[64];
};

void* library = nullptr;

template <typename... Args>
void Call(const std::string& name, Args... args) {
  const auto function = reinterpret_cast<int (*)(Args...)>(dlsym(library, name.c_str()));
  const int result = function == nullptr ? -1 : function(args...);
  if (result == 0) return;
  std::cout << "error " << name << " " << result << std::endl;
  std::exit(1);
}

std::string ToHex(const std::string& bytes) {
  std::string out;
  for (const unsigned char c : bytes) {
    char text[3];
    std::snprintf(text, sizeof(text), "%02x", c);
    out += text;
  }
  return out;
}

std::string FromHex(const std::string& text) {
  std::string out;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    out += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const bool hip = std::string(argv[2]) == "hip";
  const size_t bytes = std::strtoull(argv[3], nullptr, 10);
  library = dlopen(argv[1], RTLD_NOW);
  if (library == nullptr) {
    std::cout << "error " << dlerror() << std::endl;
    return 1;
  }
  const auto name = [&](const char* cuda, const char* of_hip) {
    return std::string(hip ? of_hip : cuda);
  };
  Call(name("cuInit", "hipInit"), 0u);
  uint64_t context = 0, address = 0;
  const uint64_t stream = 0;
  if (!hip) Call("cuCtxCreate_v2", &context, 0u, 0);
  Call(name("cuMemAlloc_v2", "hipMalloc"), &address, bytes);
  Handle handle;
  Call(name("cuIpcGetMemHandle", "hipIpcGetMemHandle"), &handle, address);
  std::cout << "handle " << ToHex(std::string(handle.bytes, sizeof(handle.bytes))) << std::endl;
  std::string what, text;
  uint64_t offset = 0;
  while (std::cin >> what >> offset >> text) {
    if (what == "write") {
      const std::string content = FromHex(text);
      Call(name("cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync"), address + offset,
           static_cast<const void*>(content.data()), content.size(), stream);
      Call(name("cuStreamSynchronize", "hipStreamSynchronize"), stream);
      std::cout << "ok" << std::endl;
    } else {
      std::string content(std::strtoull(text.c_str(), nullptr, 10), '\0');
      Call(name("cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync"), static_cast<void*>(content.data()),
           address + offset, content.size(), stream);
      Call(name("cuStreamSynchronize", "hipStreamSynchronize"), stream);
      std::cout << ToHex(content) << std::endl;
    }
  }
  return 0;
}
