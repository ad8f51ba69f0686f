#include "common/admin_http.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include <poll.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/time.h"

namespace tokura {
namespace {

constexpr size_t kThreads = 16;
constexpr size_t kWaitingMax = 64;  // accepted connections without a thread
constexpr int kBacklog = 64;
constexpr Duration kRequestTime = std::chrono::seconds(5);  // from its thread to the last byte sent
// While others wait for a thread, a connection that does not send its request gives way after this:
// a few that connect and say nothing must not make a healthy process look dead.
constexpr Duration kPatience = std::chrono::milliseconds(250);
constexpr char kEndpoints[] = "/metrics /healthz /readyz /version";

// An eventfd that becomes readable, and stays so, when the server stops.
class StopSignal {
 public:
  StopSignal() : fd_(eventfd(0, EFD_CLOEXEC)) { TOKURA_CHECK(fd_ >= 0); }
  ~StopSignal() { close(fd_); }
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  void Raise() {
    const uint64_t one = 1;
    TOKURA_CHECK(write(fd_, &one, sizeof(one)) == sizeof(one));
  }
  int fd() const { return fd_; }

 private:
  const int fd_;
};

// One accepted connection; closes it. Bounds what a peer can cost: bytes read, and the time for the
// whole exchange however slowly it talks.
class BoundedStream final : public httplib::Stream {
 public:
  // `waiting` counts the connections without a thread; both outlive the stream.
  BoundedStream(int fd, const StopSignal& stop, const std::atomic<size_t>& waiting)
      : fd_(fd), stop_(stop), waiting_(waiting), begun_(SystemClock().Now()) {}
  ~BoundedStream() override {
    shutdown(fd_, SHUT_RDWR);
    close(fd_);
  }

  bool is_readable() const override { return Wait(POLLIN); }
  bool is_writable() const override { return Wait(POLLOUT); }

  ssize_t read(char* out, size_t size) override {
    if (begin_ == end_ && !Fill()) {
      return -1;
    }
    const size_t count = std::min(size, end_ - begin_);
    std::copy_n(buffer_.data() + begin_, count, out);
    begin_ += count;
    return static_cast<ssize_t>(count);
  }

  ssize_t write(const char* data, size_t size) override {
    while (Wait(POLLOUT)) {
      const ssize_t sent = send(fd_, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent >= 0 || (errno != EINTR && errno != EAGAIN)) {
        return sent;
      }
    }
    return -1;
  }

  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }
  socket_t socket() const override { return fd_; }

 private:
  // Until the socket is ready; false when the time is over and when the server stops.
  bool Wait(short events) const {
    std::array<pollfd, 2> fds = {{{fd_, events, 0}, {stop_.fd(), POLLIN, 0}}};
    while (true) {
      const bool yields = events == POLLIN && waiting_.load(std::memory_order_relaxed) > 0;
      const TimePoint end = begun_ + (yields ? kPatience : kRequestTime);
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(end - SystemClock().Now());
      if (left.count() <= 0) {
        return false;
      }
      // No longer than the patience, to see whether somebody waits by now.
      const auto look = std::min<std::chrono::nanoseconds>(left, kPatience);
      const int ready =
          poll(fds.data(), fds.size(),
               static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(look).count()));
      if (ready > 0) {
        return fds[1].revents == 0;
      }
      if (ready < 0 && errno != EINTR) {
        return false;
      }
    }
  }

  bool Fill() {
    const size_t room = std::min(buffer_.size(), kHttpRequestBytesMax - total_);
    while (room > 0 && Wait(POLLIN)) {
      const ssize_t got = recv(fd_, buffer_.data(), room, MSG_DONTWAIT);
      if (got > 0) {
        begin_ = 0;
        end_ = static_cast<size_t>(got);
        total_ += end_;
        return true;
      }
      if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
        return false;
      }
    }
    return false;
  }

  const int fd_;
  const StopSignal& stop_;
  const std::atomic<size_t>& waiting_;
  const TimePoint begun_;
  std::array<char, 4096> buffer_{};
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t total_ = 0;
};

// httplib's pool with a bounded queue: when it is full the accepting thread waits, and further
// connections wait in the kernel's backlog.
class BoundedPool final : public httplib::ThreadPool {
 public:
  // `waiting` outlives the pool.
  explicit BoundedPool(std::atomic<size_t>& waiting)
      : httplib::ThreadPool(kThreads), waiting_(waiting) {}

  void enqueue(std::function<void()> serve) override {
    {
      std::unique_lock lock(mutex_);
      room_.wait(lock, [this] { return waiting_.load() < kWaitingMax; });
      waiting_.fetch_add(1);
    }
    httplib::ThreadPool::enqueue([this, serve = std::move(serve)] {
      {
        const std::lock_guard lock(mutex_);
        waiting_.fetch_sub(1);
      }
      room_.notify_one();
      serve();
    });
  }

 private:
  std::mutex mutex_;
  std::condition_variable room_;
  std::atomic<size_t>& waiting_;  // connections without a thread; changed under mutex_
};

class HttpAdminServer final : public AdminServer, private AdminRequests {
 public:
  explicit HttpAdminServer(const AdminServer::Options& options)
      : AdminRequests(options), address_(options.listen) {}

  ~HttpAdminServer() override {
    if (thread_.joinable()) {
      stop_.Raise();
      httplib::Server::stop();
      thread_.join();
    }
  }

  absl::Status Listen() {
    // Without SO_REUSEPORT, httplib's default, under which two servers would share one port.
    set_socket_options([](socket_t fd) {
      const int yes = 1;
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    const int port = address_.port == 0                           ? bind_to_any_port(address_.host)
                     : bind_to_port(address_.host, address_.port) ? address_.port
                                                                  : -1;
    if (port <= 0) {
      return absl::UnavailableError(absl::StrCat("admin: cannot listen on host ", address_.host,
                                                 " port ", address_.port,
                                                 ": in use, or no address of this machine"));
    }
    address_.port = static_cast<uint16_t>(port);
    // httplib listens with a backlog of 5, beyond which a connect waits a second; listening again
    // only changes that number.
    TOKURA_CHECK(::listen(svr_sock_, kBacklog) == 0);
    // httplib makes its queue once it runs; before that stop() would be lost.
    std::promise<void> running;
    new_task_queue = [this, &running] {
      running.set_value();
      return new BoundedPool(waiting_);
    };
    thread_ = std::thread([this] { listen_after_bind(); });
    running.get_future().wait();
    return absl::OkStatus();
  }

  net::Address address() const override { return address_; }

 private:
  bool process_and_close_socket(socket_t fd) override {
    BoundedStream stream(fd, stop_, waiting_);
    Answer(stream);
    return true;
  }

  net::Address address_;
  StopSignal stop_;
  std::atomic<size_t> waiting_{0};
  std::thread thread_;
};

}  // namespace

AdminRequests::AdminRequests(AdminServer::Options options) : options_(std::move(options)) {
  set_payload_max_length(kHttpRequestBytesMax);
  set_pre_routing_handler([](const httplib::Request& request, httplib::Response& response) {
    if (request.method == "GET" || request.method == "HEAD") {
      return HandlerResponse::Unhandled;
    }
    response.status = 405;
    response.set_header("Allow", "GET, HEAD");
    return HandlerResponse::Handled;
  });
  set_error_handler([](const httplib::Request&, httplib::Response& response) {
    if (response.body.empty()) {
      response.set_content(absl::StrCat(response.status, ": GET one of ", kEndpoints, "\n"),
                           "text/plain; charset=utf-8");
    }
  });
  AddRoutes();
}

void AdminRequests::AddRoutes() {
  Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
    response.set_content(prometheus::TextSerializer().Serialize(options_.registry->Collect()),
                         "text/plain; version=0.0.4; charset=utf-8");
  });
  Get("/healthz", [this](const httplib::Request&, httplib::Response& response) {
    SetHealth(options_.healthy, response);
  });
  Get("/readyz", [this](const httplib::Request&, httplib::Response& response) {
    SetHealth(options_.ready, response);
  });
  Get("/version", [this](const httplib::Request&, httplib::Response& response) {
    response.set_content(options_.version_json + "\n", "application/json");
  });
}

void AdminRequests::SetHealth(const std::function<absl::Status()>& check,
                              httplib::Response& response) {
  const absl::Status status = check ? check() : absl::OkStatus();
  response.status = status.ok() ? 200 : 503;
  response.set_content(status.ok() ? "ok\n" : absl::StrCat(std::string(status.message()), "\n"),
                       "text/plain; charset=utf-8");
}

void AdminRequests::Answer(httplib::Stream& stream) {
  bool closed = false;
  // Ranges are dropped: a request of many would be answered with as many copies of a page.
  process_request(stream, /*close_connection=*/true, closed,
                  [](httplib::Request& request) { request.ranges.clear(); });
}

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(Options options) {
  TOKURA_CHECK(options.registry != nullptr);
  auto server = std::make_unique<HttpAdminServer>(options);
  if (absl::Status status = server->Listen(); !status.ok()) {
    return status;
  }
  return server;
}

}  // namespace tokura
