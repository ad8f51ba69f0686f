#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/integration/process.h"

namespace tokura::integration {

// `tokura bench soak`, which uses servers and checks every byte until it is told to end.
class SoakUnderTest {
 public:
  // `flags` name the servers and how much. `launcher`: words before the program's path, of a
  // program that becomes the soak.
  explicit SoakUnderTest(const std::vector<std::string>& flags,
                         const std::vector<std::string>& launcher = {});

  ChildProcess& process() { return *process_; }
  // SIGTERM, and its report. That it ends, with status 0, that it had hits, and that nothing was
  // wrong, hung, or took longer to recover than it may is expected.
  nlohmann::json End();

 private:
  const std::string out_path_;
  const std::string error_path_;
  std::unique_ptr<ChildProcess> process_;
};

}  // namespace tokura::integration
