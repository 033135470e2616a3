#include "engine/base/version.h"

namespace telegrad {

std::string_view Version() { return TELEGRAD_VERSION; }

}  // namespace telegrad
