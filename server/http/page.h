// The page at / for people: the models, their inputs and outputs, their load, and a form to try
// one.
#pragma once

#include <string_view>

namespace telegrad {

std::string_view PageHtml();
std::string_view PageScript();

}  // namespace telegrad
