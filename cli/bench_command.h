#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/bench.h"
#include "cli/output.h"

namespace tokura::cli {

// {"commit","machine","results":[…]} as `tokura bench NAME --json` writes it.
Json BenchReport(const std::vector<BenchRow>& rows);
// The same rows for people.
std::string BenchTable(const std::vector<BenchRow>& rows);

// `tokura bench codec`. `args` are what follows the command; the exit status is returned.
int RunBenchCodec(const std::vector<std::string>& args);
// `tokura bench transport`, likewise.
int RunBenchTransport(const std::vector<std::string>& args);
// `tokura bench lookup`, likewise.
int RunBenchLookup(const std::vector<std::string>& args);

}  // namespace tokura::cli
