#include "cli/command.h"

#include <cstddef>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "cli/output.h"
#include "cli/table.h"
#include "common/build_info.h"

namespace tokura::cli {
namespace {

std::string FirstWords(const std::vector<std::string>& args, size_t count) {
  std::string words;
  for (size_t i = 0; i < count && i < args.size(); ++i) {
    words += (i == 0 ? "" : " ") + args[i];
  }
  return words;
}

// The public commands, all of them or those that begin with the word `group`.
std::string CommandList(std::span<const Command> commands, const std::string& group) {
  TextTable table({{"command"}, {"what it does"}});
  for (const Command& command : commands) {
    const bool member = group.empty() || command.name.substr(0, group.size() + 1) == group + " ";
    if (command.kind == CommandKind::kPublic && member) {
      table.AddRow({std::string(command.name), std::string(command.summary)});
    }
  }
  return table.ToString();
}

bool IsGroup(std::span<const Command> commands, const std::string& word) {
  for (const Command& command : commands) {
    if (!word.empty() && command.name.substr(0, word.size() + 1) == word + " ") {
      return true;
    }
  }
  return false;
}

std::string Help(std::span<const Command> commands, const std::string& group) {
  return absl::StrCat(
      "Usage: tokura ", group, group.empty() ? "" : " ", "COMMAND [OPTIONS]\n\n",
      group.empty() ? "Tokura shares the KV cache of language models between workers.\n\n" : "",
      CommandList(commands, group),
      "\n`tokura COMMAND --help` shows a command's options and an example.\n");
}

bool IsHelp(const std::string& word) {
  return word == "--help" || word == "-h" || word == "help";
}

}  // namespace

int RunCommand(std::span<const Command> commands, const std::vector<std::string>& args) {
  const std::string first = FirstWords(args, 1);
  for (const size_t words : {2, 1}) {
    const std::string name = FirstWords(args, words);
    for (const Command& command : commands) {
      if (args.size() >= words && command.name == name) {
        return command.run({args.begin() + static_cast<std::ptrdiff_t>(words), args.end()});
      }
    }
  }
  if (IsHelp(first)) {
    std::fputs(Help(commands, "").c_str(), stdout);
    return kExitOk;
  }
  if (first == "--version") {
    const BuildInfo& build = GetBuildInfo();
    std::fputs(absl::StrCat("tokura ", build.version, " (", build.commit, ")\n").c_str(), stdout);
    return kExitOk;
  }
  const bool group = IsGroup(commands, first);
  if (group && args.size() == 2 && IsHelp(args[1])) {
    std::fputs(Help(commands, first).c_str(), stdout);
    return kExitOk;
  }
  const std::string what =
      args.empty() || (group && args.size() == 1)
          ? absl::StrCat("tokura: say what to do\n\n")
          : absl::StrCat("tokura: unknown command '", FirstWords(args, group ? 2 : 1), "'\n\n");
  std::fputs(absl::StrCat(what, Help(commands, group ? first : "")).c_str(), stderr);
  return kExitUsage;
}

}  // namespace tokura::cli
