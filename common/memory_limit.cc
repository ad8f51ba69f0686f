#include "common/memory_limit.h"

#include <charconv>
#include <fstream>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace tokura {
namespace {

// The number that `text` begins with; nothing when there is none, as in "max".
std::optional<uint64_t> LeadingNumber(std::string_view text) {
  while (!text.empty() && text.front() == ' ') {
    text.remove_prefix(1);
  }
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

void Take(std::optional<uint64_t> bytes, const std::string& source,
          std::optional<MemoryLimit>* limit) {
  if (bytes.has_value() && (!limit->has_value() || *bytes < (*limit)->bytes)) {
    *limit = MemoryLimit{*bytes, source};
  }
}

void TakeMachine(const std::string& root, std::optional<MemoryLimit>* limit) {
  constexpr std::string_view kAvailable = "MemAvailable:";
  constexpr uint64_t kUnit = 1024;
  const std::string path = root + "/proc/meminfo";
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, kAvailable.size(), kAvailable) == 0) {
      const std::optional<uint64_t> units =
          LeadingNumber(std::string_view(line).substr(kAvailable.size()));
      Take(units.has_value() ? std::optional(*units * kUnit) : std::nullopt, path, limit);
    }
  }
}

// The limit files called `name` of the group `group` below `tree` and of all that it is in.
void TakeGroups(const std::string& tree, std::string group, const char* name,
                std::optional<MemoryLimit>* limit) {
  while (true) {
    const std::string path = absl::StrCat(tree, group == "/" ? "" : group, "/", name);
    std::ifstream file(path);
    if (std::string line; std::getline(file, line)) {
      Take(LeadingNumber(line), path, limit);
    }
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos || group.size() <= 1) {
      return;
    }
    group.resize(slash == 0 ? 1 : slash);
  }
}

}  // namespace

std::optional<MemoryLimit> FindMemoryLimit(const std::string& root) {
  std::optional<MemoryLimit> limit;
  TakeMachine(root, &limit);
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // number:controllers:path, without controllers for version 2.
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers =
        absl::StrCat(",", line.substr(first + 1, second - first - 1), ",");
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") {
      TakeGroups(root + "/sys/fs/cgroup", group, "memory.max", &limit);
    } else if (controllers.find(",memory,") != std::string::npos) {
      TakeGroups(root + "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", &limit);
    }
  }
  return limit;
}

absl::Status CheckMemoryLimit(uint64_t bytes, const std::string& root) {
  const std::optional<MemoryLimit> limit = FindMemoryLimit(root);
  if (limit.has_value() && bytes >= limit->bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(bytes, " bytes of memory do not fit: this process may use ", limit->bytes,
                     " bytes (", limit->source, ")"));
  }
  return absl::OkStatus();
}

}  // namespace tokura
