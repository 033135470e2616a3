// The members of an object in JSON, one after another.
#pragma once

#include <string>

#include "engine/base/json.h"

namespace telegrad {

// Takes an object; `member` reads the value of the one whose name it gets, and is false where that
// is wrong.
template <typename Member>
bool ReadMembers(JsonReader& reader, Member member) {
  if (!reader.Eat('{')) return false;
  if (reader.Eat('}')) return true;
  do {
    std::string key;
    if (!reader.String(&key) || !reader.Eat(':') || !member(key)) return false;
  } while (reader.Eat(','));
  return reader.Eat('}');
}

}  // namespace telegrad
