// The controls of tests/fakes/failing, from the library that a driver opens.
#pragma once

#include <dlfcn.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace telegrad {

class FailingLibrary {
 public:
  // In front of the library `below`.
  FailingLibrary(const std::string& path, const std::string& below)
      : library_(dlopen(path.c_str(), RTLD_NOW)) {
    EXPECT_NE(library_, nullptr) << dlerror();
    works_ = library_ != nullptr && Call<bool>("failingOpen", below.c_str());
    if (works_) Call<void>("failingReset");
  }
  FailingLibrary(const FailingLibrary&) = delete;
  FailingLibrary& operator=(const FailingLibrary&) = delete;
  ~FailingLibrary() {
    if (library_ != nullptr) Call<void>("failingReset");
  }

  bool works() const { return works_; }
  void Reset() { Call<void>("failingReset"); }
  void Fail(const std::string& name, int64_t nth, int error) {
    Call<void>("failingSet", name.c_str(), nth, error);
  }
  int64_t Calls(const std::string& name) { return Call<int64_t>("failingCalls", name.c_str()); }
  int64_t Succeeded(const std::string& name) {
    return Call<int64_t>("failingSucceeded", name.c_str());
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (int i = 0; const char* name = Call<const char*>("failingName", i); ++i) {
      names.emplace_back(name);
    }
    return names;
  }

 private:
  template <typename Result, typename... Parameters>
  Result Call(const char* name, Parameters... parameters) {
    return reinterpret_cast<Result (*)(Parameters...)>(dlsym(library_, name))(parameters...);
  }

  void* const library_;
  bool works_ = false;
};

}  // namespace telegrad
