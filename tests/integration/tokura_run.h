#pragma once

// The program `tokura` run to its end, as users and scripts do.

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace tokura::integration {

struct Finished {
  int exit_code = -1;  // -1: killed, or it does not end
  std::string out;
  std::string error;
};

Finished Tokura(std::vector<std::string> arguments);

// Standard output of a command that succeeds, which must be one JSON object (or a list of rows) and
// nothing else; else the test has failed.
nlohmann::json TokuraJson(std::vector<std::string> arguments);

// Path of a capture of tests/data/kv.
std::string Captured(const std::string& name);

}  // namespace tokura::integration
