// The page at / for people: models, what they take, how busy they are, and a way to try one.
#pragma once

#include <string_view>

namespace telegrad {

std::string_view PageHtml();
std::string_view PageScript();

}  // namespace telegrad
