// telegrad-opt without its main: what a command line does to a text.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/tools/search_pieces.h"

namespace telegrad {

struct OptResult {
  int exit_code = 0;  // 0 done, 1 failed, 2 wrong usage
  std::string out, err;
};

// `args` is without the program's name. `read_stdin` is called where the input is "-" or not named,
// `open` for --search.
OptResult RunOpt(std::span<const std::string_view> args,
                 const std::function<std::string()>& read_stdin, const OpenDevice& open = nullptr);

}  // namespace telegrad
