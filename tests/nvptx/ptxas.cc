// Runs ptxas on a temporary file and reads registers, spills and stack out of its verbose
// output.
#include "tests/nvptx/ptxas.h"

#include <stdio.h>
#include <unistd.h>

#include <cstdlib>
#include <regex>

#include "absl/strings/str_split.h"
#include "engine/base/files.h"
#include "engine/base/status.h"
#include "engine/base/strings.h"
#include "tests/fakes/temporary_directory.h"

namespace telegrad::testing {
namespace {

int64_t Number(const std::string& text, const std::string& pattern) {
  std::smatch match;
  return std::regex_search(text, match, std::regex(pattern)) ? std::stoll(match[1]) : 0;
}

}  // namespace

std::string FindPtxas() {
  if (const char* named = std::getenv("TELEGRAD_PTXAS"); named != nullptr) return named;
  const char* path = std::getenv("PATH");
  std::vector<std::string> folders = absl::StrSplit(path == nullptr ? "" : path, ':');
  folders.emplace_back("/usr/local/cuda/bin");
  for (const std::string& folder : folders) {
    const std::string file = folder + "/ptxas";
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

absl::StatusOr<Assembled> Assemble(const std::string& ptxas, const std::string& ptx,
                                   const std::string& arch) {
  const TemporaryDirectory directory;
  const std::string in = directory.path() / "k.ptx", out = directory.path() / "k.cubin";
  TG_RETURN_IF_ERROR(WriteFile(in, ptx));
  const std::string command =
      StrCat("'", ptxas, "' -v -arch ", arch, " '", in, "' -o '", out, "' 2>&1");
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return Internal("cannot run ", ptxas);
  std::string said;
  char buffer[4096];
  while (const size_t n = fread(buffer, 1, sizeof buffer, pipe)) said.append(buffer, n);
  if (pclose(pipe) != 0) return Internal(ptxas, ": ", said);
  Assembled result;
  result.registers = Number(said, "Used ([0-9]+) registers");
  result.barriers = Number(said, "used ([0-9]+) barriers");
  result.stack = Number(said, "([0-9]+) bytes stack frame");
  result.spill_stores = Number(said, "([0-9]+) bytes spill stores");
  result.spill_loads = Number(said, "([0-9]+) bytes spill loads");
  TG_ASSIGN_OR_RETURN(result.code, ReadFile(out));
  return result;
}

}  // namespace telegrad::testing
