// A driver library in front of another one: every function of a table is passed on to the library
// below, but for the one call that a test wants to fail. The file that includes this defines
// SYMBOL_TABLE, the file of the table, whose types it has.
//
// A function that returns a pointer fails by a null pointer, and gives the error to its last
// parameter; every other returns the error.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>

// Rows of either table, as DO(name, result, parameters).
#define CL_SYMBOL(name, result, parameters) DO(name, result, parameters)
#define CUDA_SYMBOL(name, version, parameters) DO(name, CUresult, parameters)
#define HIP_SYMBOL(name, parameters) DO(name, hipError_t, parameters)

namespace telegrad::failing {

struct Symbol {
  const char* name = nullptr;
  std::atomic<void*> real{nullptr};
  std::atomic<int64_t> calls{0}, succeeded{0};
  std::atomic<int64_t> fail_at{0};  // the number of the call that fails, from 1; 0: none
  std::atomic<int> error{0};
};

inline std::atomic<void*> below{nullptr};  // the library that does the work
inline void* Below() { return below; }

template <int kIndex, typename Function>
struct Call;

enum Index : int {
#define DO(name, result, parameters) k_##name,
#include SYMBOL_TABLE
#undef DO
  kCount
};
inline Symbol symbols[] = {
#define DO(name, result, parameters) {#name},
#include SYMBOL_TABLE
#undef DO
};

inline Symbol* Find(const char* name) {
  for (Symbol& symbol : symbols) {
    if (std::strcmp(symbol.name, name) == 0) return &symbol;
  }
  return nullptr;
}

template <int kIndex, typename Result, typename... Parameters>
struct Call<kIndex, Result (*)(Parameters...)> {
  static Result Do(Parameters... parameters) {
    Symbol& symbol = symbols[kIndex];
    if (symbol.real == nullptr) symbol.real = dlsym(Below(), symbol.name);
    const int64_t call = ++symbol.calls;
    if (call == symbol.fail_at || symbol.real == nullptr) {
      const int error = symbol.error;
      if constexpr (std::is_pointer_v<Result>) {
        *std::get<sizeof...(parameters) - 1>(std::tie(parameters...)) = error;
        return nullptr;
      } else {
        return static_cast<Result>(error);
      }
    }
    const auto function = reinterpret_cast<Result (*)(Parameters...)>(symbol.real.load());
    const Result result = function(parameters...);
    if constexpr (std::is_pointer_v<Result>) {
      symbol.succeeded += result != nullptr ? 1 : 0;
    } else {
      symbol.succeeded += static_cast<int>(result) == 0 ? 1 : 0;
    }
    return result;
  }
};

}  // namespace telegrad::failing

extern "C" {
__attribute__((visibility("hidden"))) void* failing_table[] = {
#define DO(name, result, parameters) \
  reinterpret_cast<void*>(           \
      &telegrad::failing::Call<telegrad::failing::k_##name, result(*) parameters>::Do),
#include SYMBOL_TABLE
#undef DO
};

// The exported function jumps to what the table has for it, with its parameters where they are.
#define DO(name, result, parameters)                                                    \
  __attribute__((naked, visibility("default"))) void name() {                           \
    asm volatile("jmp *failing_table+%c0(%%rip)"                                        \
                 :                                                                      \
                 : "i"(static_cast<int>(sizeof(void*)) * telegrad::failing::k_##name)); \
  }
#include SYMBOL_TABLE
#undef DO

// --- the controls ---

#define FAILING_API __attribute__((visibility("default")))

// What all calls go to, from the next on. Whether it can be opened.
FAILING_API bool failingOpen(const char* path) {
  telegrad::failing::below = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  return telegrad::failing::below != nullptr;
}
FAILING_API void failingReset() {
  for (telegrad::failing::Symbol& symbol : telegrad::failing::symbols) {
    symbol.calls = symbol.succeeded = symbol.fail_at = 0;
  }
}
// The name of function number `index`; null behind the last.
FAILING_API const char* failingName(int index) {
  return index < telegrad::failing::kCount ? telegrad::failing::symbols[index].name : nullptr;
}
// Call number `nth` from the last reset returns `error`.
FAILING_API void failingSet(const char* name, int64_t nth, int error) {
  if (auto* symbol = telegrad::failing::Find(name)) {
    symbol->error = error;
    symbol->fail_at = nth;
  }
}
FAILING_API int64_t failingCalls(const char* name) {
  const auto* symbol = telegrad::failing::Find(name);
  return symbol == nullptr ? -1 : symbol->calls.load();
}
FAILING_API int64_t failingSucceeded(const char* name) {
  const auto* symbol = telegrad::failing::Find(name);
  return symbol == nullptr ? -1 : symbol->succeeded.load();
}
}
