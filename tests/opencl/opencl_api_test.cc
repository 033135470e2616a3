// Our declarations of OpenCL against a real cl.h, where there is one: every constant has the value
// that it has there.
#include "engine/opencl/opencl_api.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "engine/base/strings.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

std::string TextOf(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// "(1 << 5)", "0x101B", "-1001"
int64_t ValueOf(std::string text) {
  std::erase_if(text, [](char c) { return c == '(' || c == ')' || c == ' '; });
  const size_t shift = text.find("<<");
  if (shift == text.npos) return std::strtoll(text.c_str(), nullptr, 0);
  return std::strtoll(text.c_str(), nullptr, 0)
         << std::strtoll(text.c_str() + shift + 2, nullptr, 0);
}

std::map<std::string, int64_t> Matches(const std::string& text, const char* pattern) {
  const std::regex row(pattern);
  std::map<std::string, int64_t> out;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), row); it != std::sregex_iterator();
       ++it) {
    out[(*it)[1]] = ValueOf((*it)[2]);
  }
  return out;
}

TEST(OpenClApi, ConstantsAreThoseOfTheHeader) {
  const std::string folder = "/usr/include/CL/";
  if (!std::filesystem::exists(folder + "cl.h")) GTEST_SKIP() << "no " << folder << "cl.h";
  constexpr char kDefine[] = R"(#define\s+(CL_\w+)\s+(\([^)]*\)|-?\w+))";
  auto theirs = Matches(TextOf(folder + "cl.h") + TextOf(folder + "cl_ext.h"), kDefine);
  auto ours = Matches(TextOf("engine/opencl/opencl_api.h"),
                      R"(\b(CL_[A-Z_]+) = ((?:0x)?[0-9A-Fa-f]+(?: << [0-9]+)?))");
  ours.merge(Matches(TextOf("engine/opencl/errors.def"), R"(\b(CL_\w+),\s+(-?[0-9]+),)"));
  EXPECT_GT(ours.size(), 80u);
  for (const auto& [name, value] : ours) {
    ASSERT_TRUE(theirs.contains(name)) << name;
    // CL_DEVICE_TYPE_ALL is written as an unsigned number here.
    EXPECT_EQ(static_cast<uint32_t>(value), static_cast<uint32_t>(theirs[name])) << name;
  }
}

}  // namespace
}  // namespace telegrad
