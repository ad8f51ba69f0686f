#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/integration/process.h"

namespace tokura::integration {

// Name of a file of this test program that does not exist yet.
std::string FreshPath(const std::string& suffix);
std::string ReadText(const std::string& path);

// A server process with a data and an admin port.
class ServerUnderTest {
 public:
  // Started and ready, or the test has failed. `command` is the program, which launchers may come
  // before, and its flags but --port-file. `log_path`: a file for its log lines; empty: with ours.
  ServerUnderTest(std::vector<std::string> command, const std::string& log_path);
  ~ServerUnderTest();

  ChildProcess& process() { return *process_; }
  const std::string& data() const { return data_; }
  const std::string& admin() const { return admin_; }
  // Body of a GET on the admin port; `status` gets the HTTP status, 0 when nobody answers.
  std::string Http(const std::string& path, int* status) const;
  // Value of one series, named as /metrics prints it; negative when it is not there.
  double Metric(const std::string& series) const;
  // SIGKILL, and wait for the end.
  void Kill();
  // SIGTERM, and wait for the end. The exit status; -1: it does not end, or otherwise.
  int Terminate();

 private:
  std::string port_file_;
  std::unique_ptr<ChildProcess> process_;
  std::string data_;
  std::string admin_;
};

}  // namespace tokura::integration
