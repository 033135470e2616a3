// Memory of a GPU of a fake driver that another process has allocated and shares, as a client of
// the daemon does.
#pragma once

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace telegrad {

class ForeignMemory {
 public:
  // `kind`: "cuda" or "hip".
  ForeignMemory(const std::string& library, const std::string& kind, int64_t bytes) {
    int in[2], out[2];
    EXPECT_EQ(pipe(in), 0);
    EXPECT_EQ(pipe(out), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    for (const int fd : {in[0], in[1], out[0], out[1]}) {
      posix_spawn_file_actions_addclose(&actions, fd);
    }
    std::vector<std::string> words = {GPU_MEMORY_EXPORTER, library, kind, std::to_string(bytes)};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    EXPECT_EQ(
        posix_spawn(&process_, words[0].c_str(), &actions, nullptr, arguments.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    in_ = fdopen(in[1], "w");
    out_ = fdopen(out[0], "r");
    const std::string line = Line();
    constexpr std::string_view kHandle = "handle ";
    EXPECT_TRUE(line.starts_with(kHandle)) << line;
    if (line.starts_with(kHandle)) handle_ = Bytes(line.substr(kHandle.size()));
  }
  ~ForeignMemory() {
    std::fclose(in_);
    std::fclose(out_);
    int status = 0;
    waitpid(process_, &status, 0);
    EXPECT_EQ(status, 0);
  }
  ForeignMemory(const ForeignMemory&) = delete;
  ForeignMemory& operator=(const ForeignMemory&) = delete;

  const std::string& handle() const { return handle_; }
  void Write(int64_t offset, const std::string& bytes) {
    std::fprintf(in_, "write %lld %s\n", static_cast<long long>(offset), Hex(bytes).c_str());
    std::fflush(in_);
    EXPECT_EQ(Line(), "ok");
  }
  std::string Read(int64_t offset, int64_t bytes) {
    std::fprintf(in_, "read %lld %lld\n", static_cast<long long>(offset),
                 static_cast<long long>(bytes));
    std::fflush(in_);
    return Bytes(Line());
  }

 private:
  static std::string Hex(const std::string& bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string out;
    for (const unsigned char c : bytes) {
      out += kDigits[c / 16];
      out += kDigits[c % 16];
    }
    return out;
  }
  static std::string Bytes(const std::string& hex) {
    std::string out;
    for (size_t i = 0; i + 1 < hex.size(); i += 2) {
      out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    }
    return out;
  }
  std::string Line() {
    std::string out;
    for (int c = 0; (c = std::fgetc(out_)) != EOF && c != '\n';) out += static_cast<char>(c);
    return out;
  }

  pid_t process_ = 0;
  FILE* in_ = nullptr;
  FILE* out_ = nullptr;
  std::string handle_;
};

}  // namespace telegrad
