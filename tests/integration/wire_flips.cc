#include "tests/integration/wire_flips.h"

#include <cstdlib>
#include <new>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "tests/integration/node_fixture.h"

namespace tokura::integration {

WireFlips::WireFlips() : path_(FreshPath(".flips")) {
  const int fd = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  TOKURA_CHECK(fd >= 0 && ftruncate(fd, sizeof(WireFlipOrders)) == 0);
  void* page = mmap(nullptr, sizeof(WireFlipOrders), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  TOKURA_CHECK(page != MAP_FAILED);
  orders_ = new (page) WireFlipOrders{};
}

WireFlips::~WireFlips() {
  munmap(orders_, sizeof(WireFlipOrders));
  unlink(path_.c_str());
}

std::vector<std::string> WireFlips::launcher() const {
  // AddressSanitizer wants to be the first library of a process and refuses to start behind one.
  const char* maybe_options = std::getenv("ASAN_OPTIONS");
  const std::string options = maybe_options == nullptr ? "" : absl::StrCat(":", maybe_options);
  return {"/usr/bin/env", absl::StrCat("LD_PRELOAD=", TOKURA_WIRE_FLIP_LIBRARY),
          absl::StrCat(kWireFlipFileVariable, "=", path_),
          absl::StrCat("ASAN_OPTIONS=verify_asan_link_order=0", options)};
}

void WireFlips::Arm(const Order& order) {
  orders_->target.store(static_cast<uint32_t>(WireFlipTarget::kNothing));
  orders_->bit.store(order.bit);
  orders_->skip.store(order.skip);
  orders_->target.store(static_cast<uint32_t>(order.target));
}

}  // namespace tokura::integration
