// Model profiles as files may hold them: as they are, and behind a right size and CRC. What parses
// must pass its own check, serialise and parse to the same, and give every head and query.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/crc32c.h"
#include "kernels/part.h"
#include "kernels/profile.h"

namespace tokura::kernels {
namespace {

std::span<const std::byte> Bytes(const std::string& text) {
  return std::as_bytes(std::span<const char>(text));
}

void Check(const std::string& bytes) {
  const auto profile = Profile::Parse(Bytes(bytes));
  if (!profile.ok()) {
    return;
  }
  const ProfileData& data = (*profile)->data();
  TOKURA_CHECK(CheckProfile(data).ok());
  TOKURA_CHECK(*ParseProfileData(Bytes(SerializeProfile(data))) == data);
  std::vector<float> queries;
  for (uint32_t g = 0; g < data.groups.size(); ++g) {
    for (uint32_t i = 0; i < data.groups[g].heads.size(); ++i) {
      const ProfileSlot slot{g, i / data.groups[g].kv_heads, i % data.groups[g].kv_heads};
      TOKURA_CHECK((*profile)->Head(slot).k.smooth.size() == data.groups[g].k_head_dim);
      queries.clear();
      AppendExemplarRows((*profile)->ExemplarsOf(slot, 3), 1000, &queries);
      TOKURA_CHECK(!queries.empty());
    }
  }
}

}  // namespace
}  // namespace tokura::kernels

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  tokura::kernels::Check(bytes);
  if (size >= 32) {
    const uint64_t file_bytes = size + 4;
    std::memcpy(bytes.data() + 16, &file_bytes, sizeof(file_bytes));
    const uint32_t crc = tokura::Crc32c(std::as_bytes(std::span<const char>(bytes)));
    bytes.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
    tokura::kernels::Check(bytes);
  }
  return 0;
}
