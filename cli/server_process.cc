#include "cli/server_process.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/paths.h"
#include "common/status_macros.h"
#include "common/time.h"

namespace tokura::cli {
namespace {

constexpr Duration kStartTimeout = std::chrono::seconds(30);
constexpr Duration kLookAgainAfter = std::chrono::milliseconds(20);

}  // namespace

absl::StatusOr<std::unique_ptr<ServerProcess>> ServerProcess::Start(const Options& options) {
  std::error_code error;
  const auto parent = std::filesystem::temp_directory_path(error);
  std::string directory = (parent / "tokura-server-XXXXXX").string();
  if (error || mkdtemp(directory.data()) == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot make a directory like ", directory));
  }
  std::unique_ptr<ServerProcess> server(new ServerProcess(std::move(directory)));
  TOKURA_RETURN_IF_ERROR(server->Launch(options));
  return server;
}

ServerProcess::~ServerProcess() {
  process_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

absl::Status ServerProcess::Launch(const Options& options) {
  const std::string port_file = directory_ + "/ports";
  ChildProcess::Options child;
  child.command = {
      std::filesystem::path(ExecutablePath()).replace_filename(options.program).string(),
      "--name",
      options.name,
      "--listen",
      options.listen,
      "--admin",
      "127.0.0.1:0",
      "--port-file",
      port_file};
  child.command.insert(child.command.end(), options.flags.begin(), options.flags.end());
  child.error_path = directory_ + "/log";
  TOKURA_ASSIGN_OR_RETURN(process_, ChildProcess::Start(child));
  const TimePoint deadline = SystemClock().Now() + kStartTimeout;
  // The program writes the file when it serves. It says nothing on its standard output: a line, or
  // the end of it, is the end of the program.
  absl::StatusOr<PortFile> ports = ReadPortFile(port_file);
  while (!ports.ok()) {
    const auto line = process_->ReadLine(kLookAgainAfter);
    if (!absl::IsDeadlineExceeded(line.status()) || SystemClock().Now() >= deadline) {
      return absl::UnavailableError(absl::StrCat(child.command.front(), " did not start\n", Log()));
    }
    ports = ReadPortFile(port_file);
  }
  ports_ = *std::move(ports);
  return absl::OkStatus();
}

std::string ServerProcess::Log() const {
  std::ifstream file(directory_ + "/log");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace tokura::cli
