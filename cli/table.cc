#include "cli/table.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "common/check.h"

namespace tokura::cli {
namespace {

// Number of characters on a screen: UTF-8 continuation bytes take no column.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

}  // namespace

void TextTable::AddRow(std::vector<std::string> cells) {
  TOKURA_CHECK(cells.size() <= columns_.size());
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::ToString() const {
  std::vector<std::string> titles;
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    titles.push_back(columns_[c].title);
    widths.push_back(Width(columns_[c].title));
    for (const auto& row : rows_) {
      widths[c] = std::max(widths[c], Width(row[c]));
    }
  }
  std::string out;
  const auto print = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t c = 0; c < cells.size(); ++c) {
      const std::string padding(widths[c] - Width(cells[c]), ' ');
      line += c == 0 ? "" : "  ";
      line += columns_[c].align == Align::kLeft ? cells[c] + padding : padding + cells[c];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  print(titles);
  for (const auto& row : rows_) {
    print(row);
  }
  return out;
}

std::string FixedPoint(double value, int digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

std::string ReadableBytes(double bytes) {
  static constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return FixedPoint(bytes, unit == 0 ? 0 : 2) + " " + kUnits[unit];
}

}  // namespace tokura::cli
