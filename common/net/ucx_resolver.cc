#include "common/net/ucx_resolver.h"

#include <cstring>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include "absl/strings/str_cat.h"

namespace tokura::net {
namespace {

absl::StatusOr<SocketAddress> Lookup(const Address& address, int flags) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = absl::StrCat(address.port);
  const int error = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot resolve '", address.host, "': ", gai_strerror(error)));
  }
  SocketAddress result;
  std::memcpy(&result.storage, found->ai_addr, found->ai_addrlen);
  result.size = found->ai_addrlen;
  freeaddrinfo(found);
  return result;
}

}  // namespace

absl::StatusOr<SocketAddress> SocketAddress::FromLiteral(const Address& address) {
  absl::StatusOr<SocketAddress> result = Lookup(address, AI_NUMERICHOST);
  if (!result.ok()) {
    return absl::InvalidArgumentError(result.status().message());
  }
  return result;
}

absl::StatusOr<SocketAddress> SocketAddress::Resolve(const Address& address) {
  return Lookup(address, 0);
}

Address SocketAddress::ToAddress() const {
  char text[INET6_ADDRSTRLEN] = "";
  Address result;
  if (storage.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
    inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text));
    result.port = ntohs(v6->sin6_port);
  } else {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text));
    result.port = ntohs(v4->sin_port);
  }
  result.host = text;
  return result;
}

UcxResolver::UcxResolver() : thread_([this] { Run(); }) {}

UcxResolver::~UcxResolver() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void UcxResolver::Resolve(const Address& address, Callback callback) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    jobs_.push_back({address, std::move(callback)});
  }
  changed_.notify_one();
}

void UcxResolver::Run() {
  while (true) {
    Job job;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
      if (stop_) {
        return;
      }
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job.callback(SocketAddress::Resolve(job.address));
  }
}

}  // namespace tokura::net
