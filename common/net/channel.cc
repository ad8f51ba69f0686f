#include "common/net/channel.h"

namespace tokura::net {
namespace {

std::string& FormatVersionSlot() {
  static std::string version;
  return version;
}

}  // namespace

void SetFormatVersion(std::string version) {
  FormatVersionSlot() = std::move(version);
}

const std::string& FormatVersion() {
  return FormatVersionSlot();
}

proto::Hello MakeHello(const Transport& transport, std::string role, std::string name,
                       std::span<const std::byte> instance) {
  proto::Hello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_transport(transport.name());
  hello.set_transport_version(transport.version());
  hello.set_format_version(FormatVersion());
  hello.set_software_version(kSoftwareVersion);
  hello.set_role(std::move(role));
  hello.set_name(std::move(name));
  hello.set_instance(instance.data(), instance.size());
  return hello;
}

}  // namespace tokura::net
