#pragma once

// What of a program's metrics moves while a test runs.

#include <functional>
#include <map>
#include <set>
#include <string>

namespace tokura::integration {

// Compares samples of Prometheus text with the first one. One thread.
class MetricsWatch {
 public:
  // `scrape` gives the text. Takes the first sample at once.
  explicit MetricsWatch(std::function<std::string()> scrape);

  // Take a sample. Whether `name`, a family or a series as the text prints it, has had another
  // value than at first in this sample or in one before. What the first sample lacks was 0.
  bool Moves(const std::string& name);
  // Families of this product of which no series has moved.
  std::set<std::string> unmoved() const;

 private:
  void Sample();

  const std::function<std::string()> scrape_;
  std::map<std::string, double> first_;  // by series
  bool has_first_ = false;
  std::set<std::string> families_;
  std::set<std::string> moved_;  // families and series
};

}  // namespace tokura::integration
