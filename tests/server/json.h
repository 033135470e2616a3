// For tests only: parses JSON with protobuf's parser, so that Telegrad's own writer is checked
// by another implementation.
#pragma once

#include <string>

#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"

namespace telegrad::testing {

using google::protobuf::Struct;
using google::protobuf::Value;

inline Struct ParseJson(const std::string& text) {
  Struct out;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &out);
  EXPECT_TRUE(status.ok()) << status.ToString() << "\n" << text.substr(0, 1000);
  return out;
}

// The field, or null with a failed expectation.
inline const Value& At(const Struct& s, const std::string& name) {
  static const Value nothing;
  const auto it = s.fields().find(name);
  EXPECT_NE(it, s.fields().end()) << "no " << name << " in " << s.ShortDebugString();
  return it == s.fields().end() ? nothing : it->second;
}
inline double Number(const Struct& s, const std::string& name) {
  return At(s, name).number_value();
}
inline const std::string& String(const Struct& s, const std::string& name) {
  return At(s, name).string_value();
}

}  // namespace telegrad::testing
