// The values that options take: sizes and durations as people write them.

#include <array>
#include <charconv>
#include <limits>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/config.h"
#include "common/status_macros.h"

namespace tokura {
namespace {

struct Unit {
  std::string_view name;
  uint64_t factor;
};

// Ascending; each is a multiple of the one before it.
constexpr std::array<Unit, 5> kByteUnits = {{{"B", 1},
                                             {"KiB", uint64_t{1} << 10},
                                             {"MiB", uint64_t{1} << 20},
                                             {"GiB", uint64_t{1} << 30},
                                             {"TiB", uint64_t{1} << 40}}};
constexpr std::array<Unit, 6> kTimeUnits = {{{"ns", 1},
                                             {"us", 1'000},
                                             {"ms", 1'000'000},
                                             {"s", 1'000'000'000},
                                             {"m", 60'000'000'000},
                                             {"h", 3'600'000'000'000}}};

absl::Status Bad(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("'", std::string(text), "' ", std::string(why)));
}

template <size_t kCount>
std::string UnitNames(const std::array<Unit, kCount>& units) {
  std::string names;
  for (const Unit& unit : units) {
    absl::StrAppend(&names, names.empty() ? "" : " ", std::string(unit.name));
  }
  return names;
}

struct Quantity {
  uint64_t number = 0;
  std::string_view unit;  // may be empty
};

// Digits, then perhaps blanks and a unit.
absl::StatusOr<Quantity> SplitQuantity(std::string_view text) {
  size_t begin = 0;
  size_t end = text.size();
  while (begin < end && text[begin] == ' ') {
    ++begin;
  }
  while (begin < end && text[end - 1] == ' ') {
    --end;
  }
  const std::string_view trimmed = text.substr(begin, end - begin);
  if (trimmed.empty()) {
    return Bad(text, "is empty");
  }
  if (trimmed.front() == '-') {
    return Bad(text, "is negative");
  }
  Quantity quantity;
  const auto [rest, error] =
      std::from_chars(trimmed.data(), trimmed.data() + trimmed.size(), quantity.number);
  if (error == std::errc::result_out_of_range) {
    return Bad(text, "is too large");
  }
  if (error != std::errc()) {
    return Bad(text, "does not begin with a number");
  }
  quantity.unit = trimmed.substr(static_cast<size_t>(rest - trimmed.data()));
  if (!quantity.unit.empty() && (quantity.unit.front() == '.' || quantity.unit.front() == ',')) {
    return Bad(text, "has a fraction; write a whole number of a smaller unit");
  }
  while (!quantity.unit.empty() && quantity.unit.front() == ' ') {
    quantity.unit.remove_prefix(1);
  }
  return quantity;
}

template <size_t kCount>
absl::StatusOr<uint64_t> Scale(std::string_view text, const Quantity& quantity,
                               const std::array<Unit, kCount>& units, uint64_t max) {
  for (const Unit& unit : units) {
    if (unit.name == quantity.unit) {
      if (quantity.number > max / unit.factor) {
        return Bad(text, "is too large");
      }
      return quantity.number * unit.factor;
    }
  }
  return Bad(text, absl::StrCat("has the unknown unit '", std::string(quantity.unit),
                                "'; the units are ", UnitNames(units)));
}

// The largest unit of `units` that divides `value`.
template <size_t kCount>
const Unit& ExactUnit(uint64_t value, const std::array<Unit, kCount>& units) {
  size_t best = 0;
  for (size_t i = 1; i < kCount && value % units[i].factor == 0; ++i) {
    best = i;
  }
  return units[best];
}

}  // namespace

absl::StatusOr<uint64_t> ParseBytes(std::string_view text) {
  TOKURA_ASSIGN_OR_RETURN(const Quantity quantity, SplitQuantity(text));
  if (quantity.unit.empty()) {
    return quantity.number;
  }
  return Scale(text, quantity, kByteUnits, std::numeric_limits<uint64_t>::max());
}

absl::StatusOr<Duration> ParseDuration(std::string_view text) {
  TOKURA_ASSIGN_OR_RETURN(const Quantity quantity, SplitQuantity(text));
  if (quantity.unit.empty()) {
    if (quantity.number == 0) {
      return Duration(0);
    }
    return Bad(text, absl::StrCat("needs a unit: ", UnitNames(kTimeUnits)));
  }
  TOKURA_ASSIGN_OR_RETURN(const uint64_t nanoseconds,
                          Scale(text, quantity, kTimeUnits,
                                static_cast<uint64_t>(std::numeric_limits<int64_t>::max())));
  return Duration(static_cast<int64_t>(nanoseconds));
}

std::string FormatBytes(uint64_t bytes) {
  const Unit& unit = ExactUnit(bytes, kByteUnits);
  if (bytes == 0 || unit.factor == 1) {
    return absl::StrCat(bytes);
  }
  return absl::StrCat(bytes / unit.factor, std::string(unit.name));
}

std::string FormatDuration(Duration value) {
  if (value.count() == 0) {
    return "0s";
  }
  const bool negative = value.count() < 0;
  const uint64_t nanoseconds = negative ? uint64_t{0} - static_cast<uint64_t>(value.count())
                                        : static_cast<uint64_t>(value.count());
  const Unit& unit = ExactUnit(nanoseconds, kTimeUnits);
  return absl::StrCat(negative ? "-" : "", nanoseconds / unit.factor, std::string(unit.name));
}

}  // namespace tokura
