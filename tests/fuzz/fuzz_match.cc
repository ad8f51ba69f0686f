// The bytes of a Match as another process may hand them over: as they are, and behind a right CRC.
// What parses must be consistent and serialise to the same bytes.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/check.h"
#include "common/crc32c.h"
#include "tokura/types.h"

namespace tokura {
namespace {

void Check(const std::string& bytes) {
  const absl::StatusOr<Match> match = Match::Parse(bytes);
  if (!match.ok()) {
    return;
  }
  TOKURA_CHECK(match->Serialize() == bytes);
  for (size_t block = 0; block < match->blocks(); ++block) {
    TOKURA_CHECK(match->HolderOf(block) != nullptr);
  }
}

}  // namespace
}  // namespace tokura

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  tokura::Check(bytes);
  const uint32_t crc = tokura::Crc32c(std::as_bytes(std::span(bytes)));
  for (size_t i = 0; i < sizeof(crc); ++i) {
    bytes.push_back(static_cast<char>(crc >> (8 * i)));
  }
  tokura::Check(bytes);
  return 0;
}
