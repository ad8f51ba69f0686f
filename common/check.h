#pragma once

// TOKURA_CHECK(cond): a broken invariant is a crash, in release builds too. Bad input is a status,
// never a check. TOKURA_DCHECK: the same in debug builds only (thread ownership and the like).

namespace tokura {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);
}  // namespace tokura

#define TOKURA_CHECK(condition)                        \
  (static_cast<bool>(condition) ? static_cast<void>(0) \
                                : ::tokura::CheckFailed(__FILE__, __LINE__, #condition))

#ifdef NDEBUG
#define TOKURA_DCHECK(condition) static_cast<void>(sizeof(static_cast<bool>(condition)))
#else
#define TOKURA_DCHECK(condition) TOKURA_CHECK(condition)
#endif
