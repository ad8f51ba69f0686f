#pragma once

// std::mutex with Clang's thread-safety annotations: a field marked TOKURA_GUARDED_BY(mutex_) may
// only be touched while mutex_ is held, and Clang's -Wthread-safety proves it. Other compilers see
// plain std::mutex.

#include <mutex>

#if defined(__clang__)
#define TOKURA_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define TOKURA_THREAD_ATTRIBUTE(x)
#endif

#define TOKURA_GUARDED_BY(x) TOKURA_THREAD_ATTRIBUTE(guarded_by(x))
#define TOKURA_REQUIRES(...) TOKURA_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define TOKURA_EXCLUDES(...) TOKURA_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define TOKURA_ACQUIRE(...) TOKURA_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define TOKURA_RELEASE(...) TOKURA_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))

namespace tokura {

// Thread-safe. Not recursive. Lock order is written where a mutex is declared.
class TOKURA_THREAD_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() TOKURA_ACQUIRE() { mutex_.lock(); }
  void Unlock() TOKURA_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

// Holds a Mutex from construction to destruction.
class TOKURA_THREAD_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) TOKURA_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() TOKURA_RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace tokura
