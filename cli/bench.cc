#include "cli/bench.h"

namespace tokura::cli {

bool Selected(const BenchOptions& options, std::string_view row_name) {
  return row_name.substr(0, options.filter.size()) == options.filter;
}

}  // namespace tokura::cli
