#include "common/net/transport.h"

#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tokura::net {

absl::StatusOr<Address> Address::Parse(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) {
    return absl::InvalidArgumentError(absl::StrCat("'", std::string(text), "' is not HOST:PORT"));
  }
  std::string_view host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  const std::string_view digits = text.substr(colon + 1);
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", std::string(digits), "' is not a port (0…65535) in '", std::string(text), "'"));
  }
  return Address{std::string(host), port};
}

std::string Address::ToString() const {
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

IncomingPayload& IncomingPayload::operator=(IncomingPayload&& other) {
  if (this != &other) {
    if (impl_) {
      Reject();
    }
    impl_ = std::move(other.impl_);
  }
  return *this;
}

IncomingPayload::~IncomingPayload() {
  if (impl_) {
    Reject();
  }
}

void IncomingPayload::Receive(RegisteredSpan destination, Done done) {
  Receive(destination, nullptr, std::move(done));
}

void IncomingPayload::Receive(RegisteredSpan destination, Arrived arrived, Done done) {
  std::exchange(impl_, nullptr)->Receive(destination, std::move(arrived), std::move(done));
}

void IncomingPayload::Reject() {
  std::exchange(impl_, nullptr)->Reject();
}

}  // namespace tokura::net
