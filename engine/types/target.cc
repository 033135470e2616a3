#include "engine/types/target.h"

namespace telegrad {

std::string Target::Key() const {
  return arch + "|" + cpu + "|" + features + "|" + std::to_string(vector_bytes) + "|" +
         std::to_string(vector_registers) + "|" + std::to_string(threads) + "|" +
         std::to_string(cache_bytes) + "|" + std::to_string(stream_bytes) + "|" +
         std::to_string(computes.bits()) + "|" + std::to_string(converts.bits());
}

}  // namespace telegrad
