// A driver's library that ends whoever loads it.
#include <cstdio>
#include <cstdlib>

namespace {

struct Abort {
  Abort() {
    std::fputs("no device would have me\n", stderr);
    std::abort();
  }
} g_abort;

}  // namespace
