#include "tests/integration/metrics_watch.h"

#include <sstream>
#include <utility>

namespace tokura::integration {
namespace {

constexpr char kTypeLine[] = "# TYPE ";
constexpr char kPrefix[] = "tokura_";

}  // namespace

MetricsWatch::MetricsWatch(std::function<std::string()> scrape) : scrape_(std::move(scrape)) {
  Sample();
  has_first_ = true;
}

bool MetricsWatch::Moves(const std::string& name) {
  Sample();
  return moved_.count(name) != 0;
}

std::set<std::string> MetricsWatch::unmoved() const {
  std::set<std::string> result;
  for (const std::string& family : families_) {
    if (moved_.count(family) == 0) {
      result.insert(family);
    }
  }
  return result;
}

void MetricsWatch::Sample() {
  std::istringstream lines(scrape_());
  std::string family;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(kTypeLine, 0) == 0) {
      std::istringstream words(line.substr(sizeof(kTypeLine) - 1));
      words >> family;
      if (family.rfind(kPrefix, 0) == 0) {
        families_.insert(family);
      }
      continue;
    }
    const size_t space = line.rfind(' ');
    if (line.rfind(kPrefix, 0) != 0 || space == std::string::npos) {
      continue;
    }
    const std::string series = line.substr(0, space);
    const double value = std::stod(line.substr(space + 1));
    if (!has_first_) {
      first_[series] = value;
    } else if (value != first_[series]) {
      moved_.insert(series);
      moved_.insert(family);
    }
  }
}

}  // namespace tokura::integration
