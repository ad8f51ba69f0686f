// A library to preload into a process under test. It stands between UCX's TCP transport and the
// system and flips one bit of what is sent when a test orders it to (wire_flip_orders.h). The bit
// flips in a copy, as it would on the way: the process's own memory stays as it is.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/integration/wire_flip_orders.h"

namespace tokura::integration {
namespace {

constexpr char kFrameMagic[] = {'T', 'K', 'R', 'A'};
constexpr size_t kFrameBytes = 56;
constexpr size_t kBodyBytesAt = 36;  // in a frame's header; proto/WIRE.md
constexpr size_t kControlBytes = 16;
constexpr size_t kReplyEndpointBytes = 8;

// The system's function behind this library's of that name.
template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

ssize_t SystemSendMessage(int fd, const msghdr* message, int flags) {
  static auto* const next = Next<ssize_t(int, const msghdr*, int)>("sendmsg");
  return next(fd, message, flags);
}

ssize_t SystemSend(int fd, const void* bytes, size_t size, int flags) {
  static auto* const next = Next<ssize_t(int, const void*, size_t, int)>("send");
  return next(fd, bytes, size, flags);
}

// Null without a file.
WireFlipOrders* MapOrders() {
  const char* path = std::getenv(kWireFlipFileVariable);
  const int fd = path == nullptr ? -1 : open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    return nullptr;
  }
  void* page = mmap(nullptr, sizeof(WireFlipOrders), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return page == MAP_FAILED ? nullptr : static_cast<WireFlipOrders*>(page);
}

// The bytes of one send whose bits may be flipped, as positions in all its bytes: up to two runs.
struct Runs {
  size_t first = 0;
  size_t first_bytes = 0;
  size_t second = 0;
  size_t second_bytes = 0;

  size_t At(uint64_t index) const {
    index %= first_bytes + second_bytes;
    return index < first_bytes ? first + index : second + (index - first_bytes);
  }
};

// UCX gathers a payload from where it lies, with its own headers in pieces before it.
std::optional<Runs> FindPayload(const msghdr& message) {
  size_t begin = 0;
  for (size_t i = 0; i < message.msg_iovlen; ++i) {
    if (message.msg_iov[i].iov_len >= kPayloadPieceBytesMin) {
      return Runs{begin, message.msg_iov[i].iov_len, 0, 0};
    }
    begin += message.msg_iov[i].iov_len;
  }
  return std::nullopt;
}

std::optional<Runs> FindFrame(const std::vector<unsigned char>& bytes) {
  const auto magic =
      std::search(bytes.begin(), bytes.end(), std::begin(kFrameMagic), std::end(kFrameMagic));
  const auto header = static_cast<size_t>(magic - bytes.begin());
  if (bytes.size() >= kPayloadPieceBytesMin || bytes.size() - header < kFrameBytes) {
    return std::nullopt;
  }
  uint32_t body = 0;
  std::memcpy(&body, &bytes[header + kBodyBytesAt], sizeof(body));
  // UCX sends the header of an active message behind its body.
  return body > header ? std::nullopt
                       : std::optional(Runs{header, kFrameBytes, header - body, body});
}

// The third piece of a gathered active message without a body is the message's own header, to which
// UCX adds the id of the endpoint that replies go to.
std::optional<Runs> FindControl(const msghdr& message) {
  if (message.msg_iovlen != 3 ||
      message.msg_iov[2].iov_len != kControlBytes + kReplyEndpointBytes) {
    return std::nullopt;
  }
  return Runs{message.msg_iov[0].iov_len + message.msg_iov[1].iov_len, kControlBytes, 0, 0};
}

std::optional<Runs> Find(WireFlipTarget target, const msghdr& message,
                         const std::vector<unsigned char>& bytes) {
  switch (target) {
    case WireFlipTarget::kPayload:
      return FindPayload(message);
    case WireFlipTarget::kFrame:
      return FindFrame(bytes);
    case WireFlipTarget::kControl:
      return FindControl(message);
    case WireFlipTarget::kNothing:
      break;
  }
  return std::nullopt;
}

std::vector<unsigned char> Gather(const msghdr& message) {
  std::vector<unsigned char> bytes;
  for (size_t i = 0; i < message.msg_iovlen; ++i) {
    const auto* begin = static_cast<const unsigned char*>(message.msg_iov[i].iov_base);
    bytes.insert(bytes.end(), begin, begin + message.msg_iov[i].iov_len);
  }
  return bytes;
}

// Whether the order for `target` is this send's to carry out.
bool TakeOrder(WireFlipOrders& orders, WireFlipTarget target) {
  for (uint32_t skip = orders.skip.load(); skip > 0;) {
    if (orders.skip.compare_exchange_weak(skip, skip - 1)) {
      return false;
    }
  }
  auto wanted = static_cast<uint32_t>(target);
  return orders.target.compare_exchange_strong(wanted, 0);
}

// As sendmsg. Nothing: there is no order that this message could carry out.
std::optional<ssize_t> SendFlipped(int fd, const msghdr& message, int flags) {
  static WireFlipOrders* const orders = MapOrders();
  const auto target = orders == nullptr ? WireFlipTarget::kNothing
                                        : static_cast<WireFlipTarget>(orders->target.load());
  if (target == WireFlipTarget::kNothing) {
    return std::nullopt;
  }
  std::vector<unsigned char> bytes = Gather(message);
  const std::optional<Runs> runs = Find(target, message, bytes);
  if (!runs || !TakeOrder(*orders, target)) {
    return std::nullopt;
  }
  const uint64_t bit = orders->bit.load();
  const size_t at = runs->At(bit / 8);
  bytes[at] = static_cast<unsigned char>(bytes[at] ^ (1u << bit % 8));
  iovec whole{bytes.data(), bytes.size()};
  msghdr changed = message;
  changed.msg_iov = &whole;
  changed.msg_iovlen = 1;
  const ssize_t sent = SystemSendMessage(fd, &changed, flags);
  if (sent > static_cast<ssize_t>(at)) {
    orders->flips.fetch_add(1);
  } else {
    orders->target.store(static_cast<uint32_t>(target));  // UCX sends the byte again, as it was
  }
  return sent;
}

}  // namespace
}  // namespace tokura::integration

extern "C" {

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  const auto sent = tokura::integration::SendFlipped(fd, *message, flags);
  return sent ? *sent : tokura::integration::SystemSendMessage(fd, message, flags);
}

ssize_t send(int fd, const void* bytes, size_t size, int flags) {
  // What UCX has copied behind its headers is no payload, by its size either: see FindPayload.
  iovec whole{const_cast<void*>(bytes), size};
  msghdr message{};
  message.msg_iov = &whole;
  message.msg_iovlen = 1;
  const auto sent = size < tokura::integration::kPayloadPieceBytesMin
                        ? tokura::integration::SendFlipped(fd, message, flags)
                        : std::nullopt;
  return sent ? *sent : tokura::integration::SystemSend(fd, bytes, size, flags);
}

}  // extern "C"
