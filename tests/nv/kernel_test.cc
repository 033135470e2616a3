// The kernel's bytes are what ptxas makes of its PTX, and the facts beside them what the ELF says.
// Needs ptxas 12.8: other versions may schedule the code otherwise.
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "devices/nv/store_42.h"
#include "tests/fakes/nv/fields.h"

namespace telegrad::nv {
namespace {

struct Output {
  std::string text;
  int status;
};

Output Execute(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  Output output;
  std::array<char, 4096> part;
  while (const size_t n = fread(part.data(), 1, part.size(), pipe))
    output.text.append(part.data(), n);
  output.status = pclose(pipe);
  return output;
}

std::string FindPtxas() {
  if (const char* set = std::getenv("TELEGRAD_PTXAS")) return set;
  const std::string found = Execute("command -v ptxas").text;
  if (!found.empty()) return found.substr(0, found.find('\n'));
  const char* usual = "/usr/local/cuda/bin/ptxas";
  return access(usual, X_OK) == 0 ? usual : "";
}

std::map<std::string, std::string> Sections(const std::string& elf) {
  const auto* at = reinterpret_cast<const std::byte*>(elf.data());
  const auto header = fakes::Get<Elf64_Ehdr>(at, 0);
  const auto section = [&](int i) {
    return fakes::Get<Elf64_Shdr>(at, header.e_shoff + i * sizeof(Elf64_Shdr));
  };
  const Elf64_Shdr names = section(header.e_shstrndx);
  std::map<std::string, std::string> sections;
  for (int i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr one = section(i);
    if (one.sh_type == SHT_NOBITS) continue;
    sections[elf.data() + names.sh_offset + one.sh_name] = elf.substr(one.sh_offset, one.sh_size);
  }
  return sections;
}

// The payload of an attribute in a .nv.info section: {format, attribute, 16 bits of size or value},
// with `size` bytes behind it where the format is 4.
std::string Attribute(const std::string& info, uint8_t attribute) {
  for (size_t i = 0; i + 4 <= info.size();) {
    const auto* at = reinterpret_cast<const std::byte*>(info.data() + i);
    const bool sized = fakes::Get<uint8_t>(at, 0) == 4;
    const uint16_t size = sized ? fakes::Get<uint16_t>(at, 2) : 0;
    if (fakes::Get<uint8_t>(at, 1) == attribute) return info.substr(i + 4, size);
    i += 4 + size;
  }
  return "";
}

TEST(Store42, IsWhatPtxasMakes) {
  const std::string ptxas = FindPtxas();
  if (ptxas.empty()) GTEST_SKIP() << "no ptxas: set TELEGRAD_PTXAS";
  const std::string version = Execute(ptxas + " --version").text;
  if (version.find("release 12.8") == std::string::npos) {
    GTEST_SKIP() << "ptxas is not of release 12.8: " << version;
  }
  const std::string cubin = testing::TempDir() + "store_42_" + std::to_string(getpid()) + ".cubin";
  const Output made = Execute(ptxas + " -arch=sm_90a -O3 -o " + cubin + " " PTX_FILE);
  ASSERT_EQ(made.status, 0) << made.text;
  std::ifstream file(cubin, std::ios::binary);
  const std::string elf{std::istreambuf_iterator<char>(file), {}};
  std::remove(cubin.c_str());
  const auto sections = Sections(elf);
  const std::string& code = sections.at(".text.store_42");
  ASSERT_EQ(code.size(), sizeof(kStore42Code));
  EXPECT_EQ(std::memcmp(code.data(), kStore42Code, code.size()), 0);
  const std::string registers = Attribute(sections.at(".nv.info"), 0x2F);  // {symbol, count}
  ASSERT_EQ(registers.size(), 8u);
  EXPECT_EQ(static_cast<uint8_t>(registers[4]), kStore42Registers);
  const std::string bank =
      Attribute(sections.at(".nv.info.store_42"), 0x0A);  // {symbol, base, size}
  ASSERT_EQ(bank.size(), 8u);
  const auto* at = reinterpret_cast<const std::byte*>(bank.data());
  EXPECT_EQ(fakes::Get<uint16_t>(at, 4), kStore42ParamBase);
  EXPECT_EQ(fakes::Get<uint16_t>(at, 6), kStore42ParamBytes);
}

TEST(NvProbe, SaysThatThereIsNoDriver) {
  if (access("/dev/nvidiactl", F_OK) == 0) GTEST_SKIP() << "there is an NVIDIA driver";
  const Output output = Execute(NV_PROBE);
  EXPECT_EQ(output.status, 0);
  EXPECT_EQ(output.text, "no NVIDIA kernel driver: /dev/nvidiactl is not there\n");
}

TEST(NvProbe, KnowsItsFlags) {
  EXPECT_THAT(Execute(NV_PROBE " --help").text, testing::HasSubstr("--force"));
  EXPECT_EQ(WEXITSTATUS(Execute(NV_PROBE " --nonsense").status), 2);
  EXPECT_EQ(WEXITSTATUS(Execute(NV_PROBE " --timeout 0").status), 2);
  EXPECT_EQ(WEXITSTATUS(Execute(NV_PROBE " --gpu -1").status), 2);
}

}  // namespace
}  // namespace telegrad::nv
