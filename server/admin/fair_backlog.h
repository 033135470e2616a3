// A bounded list of items of tenants, in the order in which they came. When it is full, the
// oldest item of the tenant that has the most of them is removed: so a tenant that adds more
// than others displaces its own, and each has room for an equal part.
#pragma once

#include <cstddef>
#include <deque>
#include <list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace telegrad {

// Not thread-safe.
template <typename T>
class FairBacklog {
 public:
  explicit FairBacklog(size_t most) : most_(most) {}
  FairBacklog(const FairBacklog&) = delete;
  FairBacklog& operator=(const FairBacklog&) = delete;

  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }

  // True if an item was dropped for it.
  bool Add(std::string_view tenant, T item) {
    auto of = tenants_.find(tenant);
    if (of == tenants_.end()) of = tenants_.try_emplace(std::string(tenant)).first;
    items_.push_back({std::move(item), of});
    Resize(of, [this](Places& places) { places.push_back(std::prev(items_.end())); });
    if (items_.size() <= most_) return false;
    const auto& [most, name] = *std::prev(by_size_.end());
    const auto largest = most > of->second.size() ? tenants_.find(name) : of;
    Erase(largest->second.front());
    return true;
  }

  // There is one.
  T TakeOldest() {
    T oldest = std::move(items_.front().value);
    Erase(items_.begin());
    return oldest;
  }

  // Calls it with each item, the oldest first.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const Item& item : items_) visit(item.value);
  }

 private:
  struct Item;
  using Items = std::list<Item>;
  using Places = std::deque<typename Items::iterator>;
  using Tenants = std::map<std::string, Places, std::less<>>;  // those that have items
  struct Item {
    T value;
    typename Tenants::iterator of;
  };

  void Erase(typename Items::iterator item) {
    const auto of = item->of;
    Resize(of, [](Places& places) { places.pop_front(); });  // of each tenant the oldest goes first
    items_.erase(item);
    if (of->second.empty()) tenants_.erase(of);
  }

  template <typename Change>
  void Resize(typename Tenants::iterator of, Change change) {
    by_size_.erase({of->second.size(), of->first});
    change(of->second);
    if (!of->second.empty()) by_size_.emplace(of->second.size(), of->first);
  }

  const size_t most_;
  Items items_;
  Tenants tenants_;
  std::set<std::pair<size_t, std::string_view>> by_size_;  // names are those of tenants_
};

}  // namespace telegrad
