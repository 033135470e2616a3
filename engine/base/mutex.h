// A mutex that says what it guards: TG_GUARDED_BY behind a member, TG_REQUIRES behind a function
// that is called with the mutex held. Clang checks both in every build (-Wthread-safety), other
// compilers see nothing of it. std::mutex has no such annotations in libstdc++, which is all
// that Mutex adds to it. A lambda that is called with the mutex held has TG_REQUIRES behind its
// parameters; where it is handed over as a std::function, only its own body is checked.
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
#define TG_UNCHECKED TG_THREAD_SAFETY(no_thread_safety_analysis)
#define TG_REQUIRES_SHARED(mutex) TG_THREAD_SAFETY(requires_shared_capability(mutex))

namespace telegrad {

class TG_THREAD_SAFETY(capability("mutex")) Mutex {
 public:
  void lock() TG_THREAD_SAFETY(acquire_capability()) { mutex_.lock(); }
  void unlock() TG_THREAD_SAFETY(release_capability()) { mutex_.unlock(); }
  bool try_lock() TG_THREAD_SAFETY(try_acquire_capability(true)) { return mutex_.try_lock(); }

  // For the analysis: it is held, where that cannot be seen because the caller reaches it by
  // another name. Nothing checks it.
  void AssertHeld() const TG_THREAD_SAFETY(assert_capability()) {}

 private:
  friend class ConditionVariable;
  std::mutex mutex_;
};

// Holds it for as long as it lives.
class TG_THREAD_SAFETY(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) TG_THREAD_SAFETY(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }
  // Of one that is held, by try_lock.
  MutexLock(Mutex& mutex, std::adopt_lock_t) TG_THREAD_SAFETY(requires_capability(mutex))
      : mutex_(mutex) {}
  ~MutexLock() TG_THREAD_SAFETY(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// One that the thread that holds it may take again.
class TG_THREAD_SAFETY(capability("mutex")) RecursiveMutex {
 public:
  void lock() TG_THREAD_SAFETY(acquire_capability()) { mutex_.lock(); }
  void unlock() TG_THREAD_SAFETY(release_capability()) { mutex_.unlock(); }

 private:
  std::recursive_mutex mutex_;
};

class TG_THREAD_SAFETY(scoped_lockable) RecursiveMutexLock {
 public:
  explicit RecursiveMutexLock(RecursiveMutex& mutex) TG_THREAD_SAFETY(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.lock();
  }
  ~RecursiveMutexLock() TG_THREAD_SAFETY(release_capability()) { mutex_.unlock(); }
  RecursiveMutexLock(const RecursiveMutexLock&) = delete;
  RecursiveMutexLock& operator=(const RecursiveMutexLock&) = delete;

 private:
  RecursiveMutex& mutex_;
};

// One that several threads may hold together, as long as none holds it alone.
class TG_THREAD_SAFETY(capability("mutex")) SharedMutex {
 public:
  void lock() TG_THREAD_SAFETY(acquire_capability()) { mutex_.lock(); }
  void unlock() TG_THREAD_SAFETY(release_capability()) { mutex_.unlock(); }
  void lock_shared() TG_THREAD_SAFETY(acquire_shared_capability()) { mutex_.lock_shared(); }
  void unlock_shared() TG_THREAD_SAFETY(release_shared_capability()) { mutex_.unlock_shared(); }

 private:
  std::shared_mutex mutex_;
};

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

class TG_THREAD_SAFETY(scoped_lockable) ExclusiveLock {
 public:
  explicit ExclusiveLock(SharedMutex& mutex) TG_THREAD_SAFETY(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.lock();
  }
  ~ExclusiveLock() TG_THREAD_SAFETY(release_capability()) { mutex_.unlock(); }
  ExclusiveLock(const ExclusiveLock&) = delete;
  ExclusiveLock& operator=(const ExclusiveLock&) = delete;

 private:
  SharedMutex& mutex_;
};

// Which can be given up before the end of its scope, and taken again.
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

// On which threads wait for a change of what a mutex guards: the functions of
// std::condition_variable, with a Mutex that is held or its ReleasableLock in place of a lock.
// std::condition_variable_any, which takes both, has a mutex of its own that each wait and each
// notification takes: 64 clients' runs took 1.2 times as long with it.
class ConditionVariable {
 public:
  void notify_one() { changed_.notify_one(); }
  void notify_all() { changed_.notify_all(); }

  template <typename Lock>
  void wait(Lock& lock) {
    Waiting waiting(lock);
    changed_.wait(waiting.lock);
  }
  // Predicates are called with the mutex held, which the analysis cannot see here.
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
  // What std::condition_variable takes, of a mutex that stays held when this ends.
  struct Waiting {
    explicit Waiting(Mutex& mutex) : lock(mutex.mutex_, std::adopt_lock) {}
    explicit Waiting(ReleasableLock& held) : Waiting(held.mutex_) {}
    ~Waiting() { lock.release(); }
    std::unique_lock<std::mutex> lock;
  };

  std::condition_variable changed_;
};

}  // namespace telegrad
