// The forms of one version of a model, by the shapes of its inputs and, where it depends on
// them, their values. Bounded: of the tenant for which the most were made, the least recently used
// form is dropped; a run in flight holds a reference to its own.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/hash.h"
#include "engine/base/mutex.h"
#include "server/serving/form.h"
#include "server/serving/infer.h"
#include "server/tenant/tenant.h"

namespace telegrad {

using InputShapes = std::vector<Shape>;

struct FormKey {
  InputShapes shapes;
  Digest values = {};  // of what the forms known so far depend on

  friend auto operator<=>(const FormKey&, const FormKey&) = default;
};

// Thread-safe.
class FormCache : public std::enable_shared_from_this<FormCache> {
 public:
  using FormPtr = std::shared_ptr<const Form>;
  using ReadValues = std::function<absl::StatusOr<InputValues>()>;
  using Done = std::function<void(const absl::StatusOr<FormPtr>&)>;
  // Why nobody waits any more, or OK.
  using Wanted = std::function<absl::Status()>;
  static constexpr size_t kMost = 64;
  static constexpr size_t kMostUnneeded = kMost / 2;
  static constexpr size_t kMostMaking = 8;  // forms of one version made at a time for a tenant

  FormCache(const FormMaker* maker, ModelConfig config, std::shared_ptr<FormSource> source)
      : maker_(*maker), config_(std::move(config)), source_(std::move(source)) {}

  // The key of a request for a model that depends on values; `inputs` are all of the model's.
  FormKey KeyOf(InputShapes shapes, std::span<const InferInput* const> inputs) const;
  // Null if it is not there.
  FormPtr Find(const FormKey& key);
  // The same, without counting as a use.
  FormPtr Peek(const FormKey& key) const;
  // Makes it if need be, on a thread that compiles, once for all who ask meanwhile. RESOURCE_
  // EXHAUSTED where `payer` may not compile now, or where too many are being made for it. One
  // without `wanted`, which no request needs, displaces nothing: no form that is used, and no
  // model. Another one takes no thread while room is made for it. Where nobody wants it any more,
  // it is not made, and each who asked is told why. `values`, where there is one, tells those of
  // the inputs, on the thread that compiles.
  void Get(const FormKey& key, int64_t rows, ReadValues values,
           const std::shared_ptr<Tenant>& payer, Wanted wanted, Done done);
  // The same on this thread, which does not wait for room either, see FormMaker.
  absl::StatusOr<FormPtr> Make(const FormKey& key, int64_t rows, const InputValues& values,
                               Tenant& payer, FormRoom* room);

  // Drops all forms, to be made anew, if this is one of them: what they had on their device is
  // lost. False if it is none any more.
  bool Forget(const FormPtr& lost);

  // Ends once this and all of its forms are destroyed: with answers that are still being sent, too.
  // Their weights are gone then, but for those that other models have in common with them.
  std::shared_ptr<Ending> gone() const { return alive_->gone; }

  // Of the weights of one form: the most of any.
  int64_t weight_bytes() const;
  size_t size() const;

 private:
  struct Waiter {
    ReadValues values;
    Wanted wanted;
    Done done;
  };
  struct Entry {
    FormPtr form;  // null while it is made
    std::vector<Waiter> waiting;
    uint64_t used = 0;
    const Tenant* payer = nullptr;  // for which it was made
  };
  struct Making {
    FormKey key;
    int64_t rows;
    std::shared_ptr<Tenant> payer;
  };
  enum class Interest { kNone, kUnneeded, kNeeded };
  struct Asked {
    Interest interest = Interest::kNone;
    ReadValues values = nullptr;  // of one who waits
  };
  absl::StatusOr<FormPtr> MakeNow(const FormKey& key, int64_t rows, const InputValues& values,
                                  Tenant& payer, FormRoom* room) const;
  void Post(std::shared_ptr<const Making> making);
  void MakeOrWait(const std::shared_ptr<const Making>& making);
  Asked AskWaiters(const Making& making);
  void Made(const FormKey& key, const absl::StatusOr<FormPtr>& form, const Tenant& payer);
  void EndMakingLocked(const Tenant& payer) TG_REQUIRES(mutex_);
  FormPtr DropOneLocked() TG_REQUIRES(mutex_);
  bool GuardsGrowLocked(const Form& form) TG_REQUIRES(mutex_);

  const FormMaker& maker_;
  const ModelConfig config_;
  const std::shared_ptr<FormSource> source_;
  // Destroyed with the last owner, of this and its forms. Temporaries, and copies of weights that
  // kernels have packed, are kept for the next run of any model: those of a model that is gone may
  // be many, and no run may come that would find them. So all of them go with it; runs of other
  // models allocate theirs again.
  struct Alive {
    explicit Alive(std::weak_ptr<Engine> of) : engine(std::move(of)) {}
    ~Alive() {
      if (const auto owned = engine.lock()) owned->ReleaseMemory();
      gone->End();
    }
    const std::shared_ptr<Ending> gone = std::make_shared<Ending>();
    const std::weak_ptr<Engine> engine;
  };
  const std::shared_ptr<Alive> alive_ = std::make_shared<Alive>(maker_.owner->engine);
  mutable Mutex mutex_;
  std::map<FormKey, Entry> forms_ TG_GUARDED_BY(mutex_);
  // By input: whether a form that was made depends on its values. Before one was, any may.
  std::vector<bool> guards_ TG_GUARDED_BY(mutex_);
  bool guards_known_ TG_GUARDED_BY(mutex_) = false;
  std::map<const Tenant*, size_t> making_ TG_GUARDED_BY(mutex_);  // that is not 0
  uint64_t uses_ TG_GUARDED_BY(mutex_) = 0;
};

}  // namespace telegrad
