#include "common/random.h"

#include <cerrno>

#include <sys/random.h>

#include "common/check.h"

namespace tokura {
namespace {

class KernelRandom final : public RandomSource {
 public:
  void Fill(std::span<std::byte> out) override {
    while (!out.empty()) {
      const ssize_t got = getrandom(out.data(), out.size(), 0);
      TOKURA_CHECK(got > 0 || errno == EINTR);
      if (got > 0) {
        out = out.subspan(static_cast<size_t>(got));
      }
    }
  }
};

}  // namespace

RandomSource& SystemRandom() {
  static KernelRandom source;
  return source;
}

}  // namespace tokura
