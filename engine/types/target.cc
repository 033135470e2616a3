#include "engine/types/target.h"

#include <array>
#include <charconv>

namespace telegrad {

std::string Target::Key() const {
  return arch + "|" + cpu + "|" + features + "|" + std::to_string(vector_bytes) + "|" +
         std::to_string(vector_registers) + "|" + std::to_string(threads) + "|" +
         std::to_string(computes.bits()) + "|" + std::to_string(converts.bits());
}

std::optional<Target> Target::FromKey(std::string_view whole) {
  std::string_view key = whole;
  std::array<std::string_view, 8> parts;
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t end = i + 1 < parts.size() ? key.find('|') : key.size();
    if (end == std::string_view::npos) return std::nullopt;
    parts[i] = key.substr(0, end);
    key.remove_prefix(i + 1 < parts.size() ? end + 1 : end);
  }
  bool good = true;
  const auto number = [&](size_t i, auto value) {
    const auto [end, error] =
        std::from_chars(parts[i].data(), parts[i].data() + parts[i].size(), value);
    good &= error == std::errc() && end == parts[i].data() + parts[i].size();
    return value;
  };
  Target target;
  target.arch = parts[0];
  target.cpu = parts[1];
  target.features = parts[2];
  target.vector_bytes = number(3, 0);
  target.vector_registers = number(4, 0);
  target.threads = number(5, 0);
  target.computes = DTypeSet::FromBits(number(6, uint32_t{0}));
  target.converts = DTypeSet::FromBits(number(7, uint32_t{0}));
  good &= target.vector_bytes >= 1 && target.vector_registers >= 1 && target.threads >= 1;
  if (!good || target.Key() != whole) return std::nullopt;
  return target;
}

}  // namespace telegrad
