#pragma once

#include <string>
#include <vector>

namespace tokura::cli {

// A table for people: columns as wide as their widest cell, two spaces apart. Thread-compatible.
class TextTable {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // Missing cells are empty; more cells than columns are a broken invariant.
  void AddRow(std::vector<std::string> cells);
  // Title line and rows, each ended by a newline, no spaces at the end of a line.
  std::string ToString() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// `value` with so many digits after the point.
std::string FixedPoint(double value, int digits);
// For reading, not for parsing back: "5.63 MiB", "812 B".
std::string ReadableBytes(double bytes);

}  // namespace tokura::cli
