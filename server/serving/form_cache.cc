#include "server/serving/form_cache.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"

namespace telegrad {

FormCache::FormPtr FormCache::Find(const InputShapes& shapes) {
  const std::lock_guard lock(mutex_);
  const auto it = forms_.find(shapes);
  if (it == forms_.end() || it->second.form == nullptr) return nullptr;
  it->second.used = ++uses_;
  return it->second.form;
}

absl::StatusOr<FormCache::FormPtr> FormCache::Make(const InputShapes& shapes, int64_t rows,
                                                   Tenant& payer) {
  absl::StatusOr<FormPtr> form = maker_.Make(*source_, config_, shapes, rows, payer);
  Made(shapes, form);
  return form;
}

void FormCache::Get(const InputShapes& shapes, int64_t rows, const std::shared_ptr<Tenant>& payer,
                    Done done) {
  FormPtr known;
  absl::Status refused;
  {
    const std::lock_guard lock(mutex_);
    const auto it = forms_.find(shapes);
    if (it != forms_.end() && it->second.form == nullptr) {
      it->second.waiting.push_back(std::move(done));
      return;
    }
    if (it != forms_.end()) {
      known = it->second.form;
    } else if (making_ >= kMostMaking) {
      refused = ResourceExhausted("model '", config_.name, "' is being compiled for ", making_,
                                  " other shapes of its inputs; try again");
    } else {
      refused = payer->TakeCompileTime(maker_.env->clock->Ns());
      if (refused.ok()) {
        ++making_;
        forms_[shapes].waiting.push_back(std::move(done));
      }
    }
  }
  if (known != nullptr) return done(known);
  if (!refused.ok()) return done(refused);
  maker_.env->compilers->Post(
      [self = shared_from_this(), shapes, rows, payer] {
        const auto form = self->maker_.Make(*self->source_, self->config_, shapes, rows, *payer);
        {
          const std::lock_guard lock(self->mutex_);
          --self->making_;
        }
        self->Made(shapes, form);
      },
      payer->share);
}

void FormCache::Made(const InputShapes& shapes, const absl::StatusOr<FormPtr>& form) {
  std::vector<Done> waiting;
  std::vector<FormPtr> dropped;  // without the lock
  {
    const std::lock_guard lock(mutex_);
    waiting = std::exchange(forms_[shapes].waiting, {});
    if (form.ok()) {
      forms_[shapes].form = *form;
      forms_[shapes].used = ++uses_;
    } else {
      forms_.erase(shapes);
    }
    while (forms_.size() > kMost) {
      auto oldest = forms_.end();
      for (auto it = forms_.begin(); it != forms_.end(); ++it) {
        if (it->second.form == nullptr) continue;
        if (oldest == forms_.end() || it->second.used < oldest->second.used) oldest = it;
      }
      if (oldest == forms_.end()) break;
      dropped.push_back(std::move(oldest->second.form));
      forms_.erase(oldest);
    }
  }
  for (const Done& done : waiting) done(form);
}

int64_t FormCache::weight_bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t most = 0;
  for (const auto& [shapes, entry] : forms_) {
    if (entry.form != nullptr) most = std::max(most, entry.form->weight_bytes);
  }
  return most;
}

size_t FormCache::size() const {
  const std::lock_guard lock(mutex_);
  return forms_.size();
}

}  // namespace telegrad
