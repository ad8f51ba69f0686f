#include "common/net/protobuf_log.h"

#include <string>

#include <google/protobuf/stubs/logging.h>

#include "common/log.h"

namespace tokura::net {

void RouteProtobufLog() {
  // Once: the setter is not safe beside lines of other threads.
  static const bool set = [] {
    google::protobuf::SetLogHandler([](google::protobuf::LogLevel level, const char* file, int line,
                                       const std::string& message) {
      // What is fatal ends the process behind this line.
      const bool fatal = level == google::protobuf::LOGLEVEL_FATAL;
      Log(fatal ? LogLevel::kError : LogLevel::kDebug, "protobuf", "message",
          {{"file", file}, {"line", line}, {"text", message}});
    });
    return true;
  }();
  static_cast<void>(set);
}

}  // namespace tokura::net
