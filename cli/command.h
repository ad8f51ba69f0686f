#pragma once

// The table of the program's commands, and what `tokura` does with its arguments.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tokura::cli {

enum class CommandKind { kPublic, kInternal };

struct Command {
  std::string_view name;     // one or two words: "put", "codec eval"
  std::string_view summary;  // one line, for --help
  // Gets what follows the name; returns the exit status.
  int (*run)(const std::vector<std::string>& args);
  CommandKind kind = CommandKind::kPublic;  // internal ones are not listed
};

// Run the command that `args` (without the program's name) begins with. --help and --version answer
// themselves; an unknown command is a usage error that names the known ones.
int RunCommand(std::span<const Command> commands, const std::vector<std::string>& args);

}  // namespace tokura::cli
