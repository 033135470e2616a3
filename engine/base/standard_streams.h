// The three descriptors that every program expects to be open, and whether what was printed
// arrived.
#pragma once

#include "absl/status/status.h"

namespace telegrad {

// Opens /dev/null in place of those of the descriptors 0, 1 and 2 that are closed. Otherwise the
// first sockets and files that the program opens get these numbers, and what it prints goes to
// them. Shared libraries open some before main is called, so a program has this called before that,
// by TG_FIRST_OF_ALL(OpenStandardDescriptors) in the file of its main.
void OpenStandardDescriptors();
#define TG_FIRST_OF_ALL(function) \
  [[gnu::section(".preinit_array"), gnu::used]] void (*const first_of_all)() = &(function)

// Writes what stdout holds back. DATA_LOSS where that, or something printed before, could not be
// written: a full disk, for instance.
absl::Status FlushOutput();

}  // namespace telegrad
