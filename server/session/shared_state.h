// What the operations of one kind keep in their session from one to the next: an object for each
// type, made when it is first asked for. Only the session's current drainer uses it.
#pragma once

#include <memory>
#include <typeindex>
#include <utility>
#include <vector>

namespace telegrad {

class SharedState {
 public:
  template <typename T>
  T& Get() {
    for (const auto& [type, part] : parts_) {
      if (type == typeid(T)) return *static_cast<T*>(part.get());
    }
    auto part = std::make_shared<T>();
    T& out = *part;
    parts_.emplace_back(typeid(T), std::move(part));
    return out;
  }

 private:
  std::vector<std::pair<std::type_index, std::shared_ptr<void>>> parts_;  // a few
};

}  // namespace telegrad
