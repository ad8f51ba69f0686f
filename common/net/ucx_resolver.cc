#include "common/net/ucx_resolver.h"

#include <cstring>
#include <thread>
#include <utility>

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

UcxResolver::UcxResolver(Lookup lookup) : shared_(std::make_shared<Shared>()) {
  shared_->lookup = std::move(lookup);
  std::thread([shared = shared_] { Run(shared); }).detach();
}

UcxResolver::~UcxResolver() {
  std::map<uint64_t, Job> dropped;
  std::unique_lock<std::mutex> lock(shared_->mutex);
  shared_->stop = true;
  dropped.swap(shared_->jobs);
  shared_->changed.notify_all();
  shared_->changed.wait(lock, [this] { return !shared_->calling; });
}

void UcxResolver::Resolve(uint64_t id, const Address& address, Callback callback) {
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->jobs.emplace(id, Job{address, std::move(callback)});
  }
  shared_->changed.notify_all();
}

void UcxResolver::Forget(uint64_t id) {
  // Destroyed after the lock is gone.
  std::map<uint64_t, Job>::node_type dropped;
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  dropped = shared_->jobs.extract(id);
}

void UcxResolver::Run(const std::shared_ptr<Shared>& shared) {
  std::unique_lock<std::mutex> lock(shared->mutex);
  while (true) {
    shared->changed.wait(lock, [&] { return shared->stop || !shared->jobs.empty(); });
    if (shared->stop) {
      return;
    }
    Job job = std::move(shared->jobs.extract(shared->jobs.begin()).mapped());
    lock.unlock();
    absl::StatusOr<SocketAddress> found = shared->lookup(job.address);
    lock.lock();
    if (shared->stop) {
      return;
    }
    shared->calling = true;
    lock.unlock();
    job.callback(std::move(found));
    job.callback = nullptr;  // what it holds goes before the destructor may return
    lock.lock();
    shared->calling = false;
    shared->changed.notify_all();
  }
}

}  // namespace tokura::net
