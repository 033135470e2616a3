// Received bytes, in memory of the transport.
#pragma once

#include <cstdint>

namespace telegrad {

class Payload {
 public:
  virtual ~Payload() = default;
  virtual int64_t size() const = 0;
  virtual void CopyTo(void* to) const = 0;  // size() bytes
};

}  // namespace telegrad
