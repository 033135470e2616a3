// Reads the list behind ".entry NAME" as PTX ISA, "Kernel Function Parameters", has it:
// declarations such as ".param .u64 .ptr .global .align 16 a" and ".param .align 64 .b8 m[128]".
#include "devices/cuda/ptx_parameters.h"

#include <algorithm>
#include <charconv>

namespace telegrad::cuda {
namespace {

// The list of the entry point's parameters, "" where there is none.
std::string_view ParameterList(std::string_view ptx, std::string_view name) {
  constexpr std::string_view kEntry = ".entry", kSpace = " \t\r\n";
  for (size_t at = ptx.find(kEntry); at != ptx.npos; at = ptx.find(kEntry, at)) {
    at = ptx.find_first_not_of(kSpace, at + kEntry.size());
    if (at == ptx.npos) break;
    std::string_view rest = ptx.substr(at);
    if (!rest.starts_with(name)) continue;
    rest.remove_prefix(name.size());
    const size_t open = rest.find_first_not_of(kSpace);
    if (open == rest.npos || rest[open] != '(') {
      if (open == 0) continue;  // a longer name
      return "";
    }
    return rest.substr(open + 1, rest.find(')', open) - open - 1);
  }
  return "";
}

// Bytes of a parameter: those of its type, the last word with a dot, as often as its [N] says.
int64_t BytesOfParameter(std::string_view declaration) {
  int64_t bits = 0;
  for (size_t dot = declaration.find('.'); dot != declaration.npos;
       dot = declaration.find('.', dot + 1)) {
    // .b8, .u64, .f32: a letter and a number; other words have longer ones.
    const std::string_view digits = declaration.substr(std::min(dot + 2, declaration.size()));
    int64_t number = 0;
    const char* const begin = digits.data();
    if (std::from_chars(begin, begin + digits.size(), number).ptr != begin) bits = number;
  }
  int64_t count = 1;
  if (const size_t open = declaration.find('['); open != declaration.npos) {
    const std::string_view digits = declaration.substr(open + 1);
    std::from_chars(digits.data(), digits.data() + digits.size(), count);
  }
  return bits / 8 * count;
}

}  // namespace

std::vector<int64_t> PtxParameterBytes(std::string_view ptx, std::string_view name) {
  const std::string_view list = ParameterList(ptx, name);
  std::vector<int64_t> out;
  for (size_t at = 0; list.find(".param", at) != list.npos;) {
    const size_t end = std::min(list.find(',', at), list.size());
    out.push_back(BytesOfParameter(list.substr(at, end - at)));
    at = std::min(end + 1, list.size());
  }
  return out;
}

}  // namespace telegrad::cuda
