// The daemon of this machine that is found without an address: it listens on a unix socket in a
// runtime directory, which only its owner, or the system, may write.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace telegrad {

// Of this user: $XDG_RUNTIME_DIR/telegrad, else /tmp/telegrad-UID.
std::string UserRuntimeFolder();
// Makes it, mode 0700. PERMISSION_DENIED where it exists and belongs to another user, or others can
// write it.
absl::Status MakeUserRuntimeFolder();

inline constexpr const char* kDaemonSocketName = "telegradd.sock";

// "unix:PATH" of the daemon that this user started, or else of the system's (/run/telegrad), if it
// accepts connections; empty if none does. A folder that another user could have made is skipped.
std::string FindLocalDaemon();

// Where a client connects that was given no address: $TELEGRAD_ADDRESS, else FindLocalDaemon, else
// kDefaultAddress.
std::string DefaultAddress();

// The process at the other end of a unix socket, by its address "unix:PATH".
absl::StatusOr<int> DaemonProcess(const std::string& address);

}  // namespace telegrad
