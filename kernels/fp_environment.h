#pragma once

#include <cfenv>

namespace tokura::kernels {

// Sets the default floating-point environment (round to nearest even, subnormals kept) for its
// lifetime and then restores the thread's own. Engines run their threads with flush-to-zero, and
// encoded bytes must not depend on that. Lives on the stack of one thread.
class ScopedFloatEnvironment {
 public:
  ScopedFloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~ScopedFloatEnvironment() { std::fesetenv(&saved_); }
  ScopedFloatEnvironment(const ScopedFloatEnvironment&) = delete;
  ScopedFloatEnvironment& operator=(const ScopedFloatEnvironment&) = delete;

 private:
  std::fenv_t saved_;
};

}  // namespace tokura::kernels
