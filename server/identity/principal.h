// Who a caller is, as the transport or a signed token says; never what a request says.
#pragma once

#include <string>

namespace telegrad {

struct Principal {
  std::string subject;  // for the log
  std::string tenant;   // who pays, and whose graphs and sessions the caller sees
  bool admin = false;   // may call the methods that are for administrators
};

}  // namespace telegrad
