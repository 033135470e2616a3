// Mutexes whose use Clang checks in every build (-Wthread-safety): TG_GUARDED_BY behind a member,
// and TG_REQUIRES behind a function, name the mutex that has to be held. Other compilers ignore
// these attributes. std::mutex has none in libstdc++; adding them is all that Mutex does. A lambda
// that is called with the mutex held has TG_REQUIRES behind its parameters; where it is handed over
// as a std::function, only its own body is checked.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>

#if defined(__clang__)
#define TG_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define TG_THREAD_SAFETY(attribute)
#endif

#define TG_GUARDED_BY(mutex) TG_THREAD_SAFETY(guarded_by(mutex))
#define TG_REQUIRES(mutex) TG_THREAD_SAFETY(requires_capability(mutex))
#define TG_REQUIRES_SHARED(mutex) TG_THREAD_SAFETY(requires_shared_capability(mutex))
// The body of this function is not checked. The reason stands beside it.
#define TG_UNCHECKED TG_THREAD_SAFETY(no_thread_safety_analysis)

namespace telegrad {

class TG_THREAD_SAFETY(capability("mutex")) Mutex {
 public:
  void lock() TG_THREAD_SAFETY(acquire_capability()) { mutex_.lock(); }
  void unlock() TG_THREAD_SAFETY(release_capability()) { mutex_.unlock(); }
  bool try_lock() TG_THREAD_SAFETY(try_acquire_capability(true)) { return mutex_.try_lock(); }

  // Tells the analysis that this mutex is held where it knows the mutex by another name. Nothing
  // checks that at run time.
  void AssertHeld() const TG_THREAD_SAFETY(assert_capability()) {}

 private:
  friend class ConditionVariable;
  std::mutex mutex_;
};

// A mutex for readers and writers: either one thread holds it alone, or any number of threads share
// it.
class TG_THREAD_SAFETY(capability("mutex")) SharedMutex {
 public:
  void lock() TG_THREAD_SAFETY(acquire_capability()) { mutex_.lock(); }
  void unlock() TG_THREAD_SAFETY(release_capability()) { mutex_.unlock(); }
  void lock_shared() TG_THREAD_SAFETY(acquire_shared_capability()) { mutex_.lock_shared(); }
  void unlock_shared() TG_THREAD_SAFETY(release_shared_capability()) { mutex_.unlock_shared(); }

 private:
  std::shared_mutex mutex_;
};

// Holds a mutex for as long as it lives.
template <typename AnyMutex>
class TG_THREAD_SAFETY(scoped_lockable) ScopedLock {
 public:
  explicit ScopedLock(AnyMutex& mutex) TG_THREAD_SAFETY(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }
  // Takes over a mutex that the caller has locked, for example by try_lock.
  ScopedLock(AnyMutex& mutex, std::adopt_lock_t) TG_THREAD_SAFETY(requires_capability(mutex))
      : mutex_(mutex) {}
  ~ScopedLock() TG_THREAD_SAFETY(release_capability()) { mutex_.unlock(); }
  ScopedLock(const ScopedLock&) = delete;
  ScopedLock& operator=(const ScopedLock&) = delete;

 private:
  AnyMutex& mutex_;
};
using MutexLock = ScopedLock<Mutex>;
using ExclusiveLock = ScopedLock<SharedMutex>;

// Shares a mutex for as long as it lives.
class TG_THREAD_SAFETY(scoped_lockable) SharedLock {
 public:
  explicit SharedLock(SharedMutex& mutex) TG_THREAD_SAFETY(acquire_shared_capability(mutex))
      : mutex_(mutex) {
    mutex_.lock_shared();
  }
  ~SharedLock() TG_THREAD_SAFETY(release_capability()) { mutex_.unlock_shared(); }
  SharedLock(const SharedLock&) = delete;
  SharedLock& operator=(const SharedLock&) = delete;

 private:
  SharedMutex& mutex_;
};

// Holds a mutex, which can be unlocked before the end of the scope and locked again.
class TG_THREAD_SAFETY(scoped_lockable) ReleasableLock {
 public:
  explicit ReleasableLock(Mutex& mutex) TG_THREAD_SAFETY(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.lock();
  }
  ~ReleasableLock() TG_THREAD_SAFETY(release_capability()) {
    if (held_) mutex_.unlock();
  }
  ReleasableLock(const ReleasableLock&) = delete;
  ReleasableLock& operator=(const ReleasableLock&) = delete;

  void lock() TG_THREAD_SAFETY(acquire_capability()) {
    mutex_.lock();
    held_ = true;
  }
  void unlock() TG_THREAD_SAFETY(release_capability()) {
    held_ = false;
    mutex_.unlock();
  }

 private:
  friend class ConditionVariable;
  Mutex& mutex_;
  bool held_ = true;
};

// std::condition_variable with the names of its functions, for a Mutex that is held, given by
// itself or by its ReleasableLock. std::condition_variable_any would take both, but has a mutex of
// its own that every wait and every notification takes: with it the runs of 64 clients took 1.2
// times as long.
class ConditionVariable {
 public:
  void notify_one() { changed_.notify_one(); }
  void notify_all() { changed_.notify_all(); }

  template <typename Lock>
  void wait(Lock& lock) {
    Waiting waiting(lock);
    changed_.wait(waiting.lock);
  }
  // With a predicate, these wait until it holds, and call it with the mutex held.
  template <typename Lock, typename Predicate>
  void wait(Lock& lock, Predicate is_over) TG_UNCHECKED {
    while (!is_over()) wait(lock);
  }
  template <typename Lock, typename Time>
  std::cv_status wait_until(Lock& lock, const Time& time) {
    Waiting waiting(lock);
    return changed_.wait_until(waiting.lock, time);
  }
  template <typename Lock, typename Time, typename Predicate>
  bool wait_until(Lock& lock, const Time& time, Predicate is_over) TG_UNCHECKED {
    while (!is_over()) {
      if (wait_until(lock, time) == std::cv_status::timeout) return is_over();
    }
    return true;
  }
  template <typename Lock, typename Duration>
  std::cv_status wait_for(Lock& lock, const Duration& duration) {
    Waiting waiting(lock);
    return changed_.wait_for(waiting.lock, duration);
  }
  template <typename Lock, typename Duration, typename Predicate>
  bool wait_for(Lock& lock, const Duration& duration, Predicate is_over) TG_UNCHECKED {
    return wait_until(lock, std::chrono::steady_clock::now() + duration, is_over);
  }

 private:
  // The lock that std::condition_variable takes. The mutex stays held when this ends.
  struct Waiting {
    explicit Waiting(Mutex& mutex) : lock(mutex.mutex_, std::adopt_lock) {}
    explicit Waiting(ReleasableLock& held) : Waiting(held.mutex_) {}
    ~Waiting() { lock.release(); }
    std::unique_lock<std::mutex> lock;
  };

  std::condition_variable changed_;
};

}  // namespace telegrad
