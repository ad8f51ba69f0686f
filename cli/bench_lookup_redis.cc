#include "cli/bench_lookup_redis.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/bench_lookup_blocks.h"
#include "common/net/ucx_transport.h"
#include "common/status_macros.h"

namespace tokura::cli {
namespace {

constexpr Duration kStartTimeout = std::chrono::seconds(10);
constexpr Duration kAnswerTimeout = std::chrono::seconds(30);
constexpr int kStartAttempts = 3;
constexpr uint64_t kLoadBlocks = 1000;  // in one command
constexpr char kLineEnd[] = "\r\n";
constexpr size_t kLineEndBytes = 2;

absl::Status Failed(const char* what) {
  return absl::UnavailableError(absl::StrCat("redis: ", what, ": ", std::strerror(errno)));
}

absl::StatusOr<std::string> FindProgram() {
  for (const char* directory : {"/usr/bin", "/usr/local/bin", "/bin", "/usr/sbin"}) {
    std::error_code ignored;
    const auto path = std::filesystem::path(directory) / "redis-server";
    if (std::filesystem::exists(path, ignored)) {
      return path.string();
    }
  }
  return absl::NotFoundError("redis-server is not installed");
}

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A TCP port of the loopback that nobody listens on now. Redis cannot choose one itself.
absl::StatusOr<uint16_t> FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  const bool bound = fd >= 0 && bind(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const absl::Status status = bound ? absl::OkStatus() : Failed("no free port");
  if (fd >= 0) {
    close(fd);
  }
  TOKURA_RETURN_IF_ERROR(status);
  return ntohs(address.sin_port);
}

// One argument of a command.
void AppendBulk(std::string_view bytes, std::string* command) {
  absl::StrAppend(command, "$", bytes.size(), kLineEnd);
  command->append(bytes);
  command->append(kLineEnd);
}

std::string_view BytesOf(const BlockKey& key) {
  return {reinterpret_cast<const char*>(key.bytes.data()), BlockKey::kBytes};
}

}  // namespace

absl::Status RespIntegers::Feed(std::string_view bytes) {
  line_.append(bytes);
  size_t begin = 0;
  for (size_t end; (end = line_.find(kLineEnd, begin)) != std::string::npos;
       begin = end + kLineEndBytes) {
    const char* const first = line_.data() + begin;
    const char* const last = line_.data() + end;
    uint64_t value = 0;
    const bool integer =
        *first == ':' && last - first > 1 && std::from_chars(first + 1, last, value).ptr == last;
    if (!integer) {
      return absl::InternalError(absl::StrCat("redis answers ", std::string(first, last)));
    }
    ++replies_;
    sum_ += value;
  }
  line_.erase(0, begin);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RedisPeer>> RedisPeer::Start() {
  TOKURA_ASSIGN_OR_RETURN(const std::string program, FindProgram());
  std::unique_ptr<RedisPeer> peer(new RedisPeer);
  absl::Status status;
  // Between the choice of a port and its use somebody else may take it.
  for (int i = 0; i < kStartAttempts; ++i) {
    status = peer->Launch(program);
    if (status.ok()) {
      return peer;
    }
  }
  return status;
}

RedisPeer::~RedisPeer() {
  if (socket_ >= 0) {
    close(socket_);
  }
}

absl::Status RedisPeer::Launch(const std::string& program) {
  TOKURA_ASSIGN_OR_RETURN(const uint16_t port, FreePort());
  TOKURA_ASSIGN_OR_RETURN(
      process_, ChildProcess::Start({.command = {program, "--port", absl::StrCat(port), "--bind",
                                                 "127.0.0.1", "--save", "", "--appendonly", "no",
                                                 "--daemonize", "no", "--loglevel", "notice"},
                                     .error_path = ""}));
  const TimePoint deadline = SystemClock().Now() + kStartTimeout;
  for (std::string line; !absl::StrContains(line, "eady to accept connections");) {
    auto next = process_->ReadLine(deadline - SystemClock().Now());
    if (!next.ok()) {
      return absl::UnavailableError(
          absl::StrCat(program, " does not start; its last word: ", line));
    }
    line = *std::move(next);
  }
  return ConnectTo(port);
}

absl::Status RedisPeer::ConnectTo(uint16_t port) {
  socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(port);
  const int on = 1;
  if (socket_ < 0 ||
      connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0) {
    const absl::Status status = Failed("connect");
    if (socket_ >= 0) {
      close(std::exchange(socket_, -1));
    }
    return status;
  }
  return absl::OkStatus();
}

absl::Status RedisPeer::Grow(uint64_t blocks) {
  while (blocks_ < blocks) {
    const uint64_t count = std::min(kLoadBlocks, blocks - blocks_);
    std::string command = absl::StrCat("*", 1 + 2 * count, kLineEnd);
    AppendBulk("MSETNX", &command);  // answers 1 when all of them are new
    for (const BlockKey& key : MadeKeys(blocks_, count)) {
      AppendBulk(BytesOf(key), &command);
      AppendBulk("1", &command);
    }
    TOKURA_RETURN_IF_ERROR(Write(command));
    TOKURA_ASSIGN_OR_RETURN(const uint64_t stored, ReadIntegers(1));
    if (stored != 1) {
      return absl::InternalError("redis had keys before it got them");
    }
    blocks_ += count;
  }
  return absl::OkStatus();
}

absl::StatusOr<Duration> RedisPeer::TimeExists(std::span<const BlockKey> keys) {
  std::string commands;
  for (const BlockKey& key : keys) {
    absl::StrAppend(&commands, "*2", kLineEnd);
    AppendBulk("EXISTS", &commands);
    AppendBulk(BytesOf(key), &commands);
  }
  const TimePoint start = SystemClock().Now();
  TOKURA_RETURN_IF_ERROR(Write(commands));
  TOKURA_ASSIGN_OR_RETURN(const uint64_t existing, ReadIntegers(keys.size()));
  const Duration took = SystemClock().Now() - start;
  if (existing != keys.size()) {
    return absl::DataLossError(
        absl::StrCat("redis has ", existing, " of ", keys.size(), " keys that it was given"));
  }
  return took;
}

absl::Status RedisPeer::Write(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EINTR) {
      return Failed("send");
    }
    bytes.remove_prefix(static_cast<size_t>(std::max<ssize_t>(sent, 0)));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> RedisPeer::ReadIntegers(uint64_t count) const {
  const Duration spin = net::UcxTransport::Options().spin;
  RespIntegers integers;
  TimePoint heard = SystemClock().Now();
  while (integers.replies() < count) {
    std::array<char, 65536> piece;
    const ssize_t got = recv(socket_, piece.data(), piece.size(), MSG_DONTWAIT);
    if (got > 0) {
      TOKURA_RETURN_IF_ERROR(
          integers.Feed(std::string_view(piece.data(), static_cast<size_t>(got))));
      heard = SystemClock().Now();
      continue;
    }
    if (got == 0) {
      return absl::UnavailableError("redis has closed the connection");
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
      return Failed("recv");
    }
    const Duration silent = SystemClock().Now() - heard;
    if (silent > kAnswerTimeout) {
      return absl::DeadlineExceededError("redis does not answer");
    }
    if (silent > spin) {
      pollfd wait{socket_, POLLIN, 0};
      poll(&wait, 1, 1000);
    }
  }
  return integers.sum();
}

}  // namespace tokura::cli
