#include "server/serving/form_cache.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"

namespace telegrad {

FormKey FormCache::KeyOf(InputShapes shapes, std::span<const InferInput* const> inputs) const {
  std::vector<bool> guards;
  {
    const MutexLock lock(mutex_);
    guards = guards_known_ ? guards_ : std::vector<bool>(inputs.size(), true);
  }
  std::string digests;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!guards[i]) continue;
    std::string content;
    for (const auto& piece : inputs[i]->pieces) {
      content.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    digests += Sha256(content).view();
  }
  return {.shapes = std::move(shapes), .values = Sha256(digests)};
}

// Keys of before say less than those of after.
bool FormCache::GuardsGrowLocked(const Form& form) {
  const bool first = !std::exchange(guards_known_, true);
  if (first) guards_.assign(form.guards.size(), false);
  bool grows = first;
  for (size_t i = 0; i < form.guards.size(); ++i) {
    grows |= form.guards[i] && !guards_[i];
    if (form.guards[i]) guards_[i] = true;
  }
  return grows;
}

FormCache::FormPtr FormCache::Find(const FormKey& key) {
  const MutexLock lock(mutex_);
  const auto it = forms_.find(key);
  if (it == forms_.end() || it->second.form == nullptr) return nullptr;
  it->second.used = ++uses_;
  return it->second.form;
}

FormCache::FormPtr FormCache::Peek(const FormKey& key) const {
  const MutexLock lock(mutex_);
  const auto it = forms_.find(key);
  return it == forms_.end() ? nullptr : it->second.form;
}

absl::StatusOr<FormCache::FormPtr> FormCache::MakeNow(const FormKey& key, int64_t rows,
                                                      const InputValues& values, Tenant& payer,
                                                      FormRoom* room) const {
  TG_ASSIGN_OR_RETURN(FormPtr made,
                      maker_.Make(*source_, config_, key.shapes, rows, values, payer, room));
  const Form* const form = made.get();
  return FormPtr(form, [made = std::move(made), alive = alive_](const Form*) mutable {
    made = nullptr;  // before the end is told
    alive = nullptr;
  });
}

absl::StatusOr<FormCache::FormPtr> FormCache::Make(const FormKey& key, int64_t rows,
                                                   const InputValues& values, Tenant& payer,
                                                   FormRoom* room) {
  absl::StatusOr<FormPtr> form = MakeNow(key, rows, values, payer, room);
  Made(key, form, payer);
  return form;
}

void FormCache::Get(const FormKey& key, int64_t rows, ReadValues values,
                    const std::shared_ptr<Tenant>& payer, Wanted wanted, Done done) {
  const bool needed = wanted != nullptr;
  FormPtr known;
  absl::Status refused;
  {
    const MutexLock lock(mutex_);
    const auto it = forms_.find(key);
    if (it != forms_.end() && it->second.form == nullptr) {
      it->second.waiting.push_back({std::move(values), std::move(wanted), std::move(done)});
      return;
    }
    if (it != forms_.end()) {
      known = it->second.form;
    } else if (!needed && forms_.size() >= kMostUnneeded) {
      refused = ResourceExhausted("model '", config_.name, "' is compiled for ", forms_.size(),
                                  " shapes; no more are made before a request needs them");
    } else if (const auto making = making_.find(payer.get());
               making != making_.end() && making->second >= kMostMaking) {
      refused =
          ResourceExhausted("model '", config_.name, "' is being compiled for ", making->second,
                            " other shapes of inputs of tenant ", payer->name, "; try again");
    } else {
      refused = payer->TakeCompileTime(maker_.env->clock->Ns());
      if (refused.ok()) {
        ++making_[payer.get()];
        forms_[key].waiting.push_back({std::move(values), std::move(wanted), std::move(done)});
      }
    }
  }
  if (known != nullptr) return done(known);
  if (!refused.ok()) return done(refused);
  Post(std::make_shared<const Making>(Making{.key = key, .rows = rows, .payer = payer}));
}

void FormCache::Post(std::shared_ptr<const Making> making) {
  const std::shared_ptr<const Share> share = making->payer->share;
  maker_.env->compilers->Post(
      [self = shared_from_this(), making = std::move(making)] { self->MakeOrWait(making); }, share);
}

// Where room is made for it, all of this is done again once there is room: the executable is cached
// then.
void FormCache::MakeOrWait(const std::shared_ptr<const Making>& making) {
  const auto [interest, values] = AskWaiters(*making);
  if (interest == Interest::kNone) return;
  FormRoom room;
  FormRoom* const to_make = interest == Interest::kNeeded ? &room : nullptr;
  absl::StatusOr<InputValues> given = values == nullptr ? InputValues() : values();
  const absl::StatusOr<FormPtr> form =
      given.ok() ? MakeNow(making->key, making->rows, *given, *making->payer, to_make)
                 : given.status();
  if (room.freed != nullptr) {
    return room.freed->Then([self = shared_from_this(), making] { self->Post(making); });
  }
  if (!form.ok() && interest == Interest::kUnneeded &&
      AskWaiters(*making).interest == Interest::kNeeded) {
    return Post(making);  // a request has come meanwhile, for which room may be made
  }
  {
    const MutexLock lock(mutex_);
    EndMakingLocked(*making->payer);
  }
  Made(making->key, form, *making->payer);
}

// Tells those who do not want it any more, and drops what nobody else waits for.
FormCache::Asked FormCache::AskWaiters(const Making& making) {
  std::vector<std::pair<Waiter, absl::Status>> gone;  // without the lock
  Asked asked;
  {
    const MutexLock lock(mutex_);
    Entry& entry = forms_[making.key];
    std::erase_if(entry.waiting, [&](Waiter& waiter) {
      absl::Status why = waiter.wanted == nullptr ? absl::OkStatus() : waiter.wanted();
      if (!why.ok()) {
        gone.emplace_back(std::move(waiter), std::move(why));
        return true;
      }
      const bool needed = waiter.wanted != nullptr;
      asked.interest = std::max(asked.interest, needed ? Interest::kNeeded : Interest::kUnneeded);
      asked.values = waiter.values;
      return false;
    });
    if (asked.interest == Interest::kNone) {
      forms_.erase(making.key);
      EndMakingLocked(*making.payer);
    }
  }
  for (const auto& [waiter, why] : gone) waiter.done(why);
  return asked;
}

void FormCache::EndMakingLocked(const Tenant& payer) {
  const auto it = making_.find(&payer);
  if (--it->second == 0) making_.erase(it);
}

// The oldest of the tenant that has the most, so that whoever sends ever other shapes takes no
// forms from others. Null where all are being made.
FormCache::FormPtr FormCache::DropOneLocked() {
  std::map<const Tenant*, size_t> counts;
  for (const auto& [key, entry] : forms_) {
    if (entry.form != nullptr) ++counts[entry.payer];
  }
  if (counts.empty()) return nullptr;
  const Tenant* const most =
      std::ranges::max_element(counts, {}, [](const auto& of) { return of.second; })->first;
  auto oldest = forms_.end();
  for (auto it = forms_.begin(); it != forms_.end(); ++it) {
    if (it->second.form == nullptr || it->second.payer != most) continue;
    if (oldest == forms_.end() || it->second.used < oldest->second.used) oldest = it;
  }
  FormPtr dropped = std::move(oldest->second.form);
  forms_.erase(oldest);
  return dropped;
}

void FormCache::Made(const FormKey& key, const absl::StatusOr<FormPtr>& form, const Tenant& payer) {
  std::vector<Waiter> waiting;
  std::vector<FormPtr> dropped;  // without the lock
  {
    const MutexLock lock(mutex_);
    waiting = std::exchange(forms_[key].waiting, {});
    const bool by_value = key.values != Digest{};
    if (!form.ok() || (by_value && GuardsGrowLocked(**form))) {
      forms_.erase(key);  // requests that come find it made again, under a key that says more
    } else {
      Entry& entry = forms_[key];
      entry.form = *form;
      entry.used = ++uses_;
      entry.payer = &payer;
    }
    while (forms_.size() > kMost) {
      if (dropped.emplace_back(DropOneLocked()) == nullptr) break;
    }
  }
  for (const Waiter& waiter : waiting) waiter.done(form);
}

bool FormCache::Forget(const FormPtr& lost) {
  std::vector<FormPtr> dropped;  // without the lock
  const MutexLock lock(mutex_);
  const bool has =
      std::ranges::any_of(forms_, [&](const auto& entry) { return entry.second.form == lost; });
  if (!has) return false;
  for (auto it = forms_.begin(); it != forms_.end();) {
    if (it->second.form == nullptr) {
      ++it;
      continue;
    }
    dropped.push_back(std::move(it->second.form));
    it = forms_.erase(it);
  }
  return true;
}

int64_t FormCache::weight_bytes() const {
  const MutexLock lock(mutex_);
  int64_t most = 0;
  for (const auto& [key, entry] : forms_) {
    if (entry.form != nullptr) most = std::max(most, entry.form->weight_bytes);
  }
  return most;
}

size_t FormCache::size() const {
  const MutexLock lock(mutex_);
  return forms_.size();
}

}  // namespace telegrad
