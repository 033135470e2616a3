// Parses PTX text to a Module: the grammar of declarations and statements. Instructions are
// decoded later (decode.h).
#pragma once

#include <string>
#include <string_view>

#include "tests/fakes/cuda/ptx/module.h"

namespace fakecuda {

// Whether `text` is PTX; if not, `error` says where and why.
bool Parse(std::string_view text, Module* module, std::string* error);

}  // namespace fakecuda
