// Any bytes as the prefix of a part, as they are and with the checksums made right.

#include <cstdint>
#include <cstring>
#include <vector>

#include "common/crc32c.h"
#include "kernels/part.h"
#include "part_fuzzing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::byte> bytes(size);
  if (size != 0) {
    std::memcpy(bytes.data(), data, size);
  }
  static_cast<void>(tokura::kernels::VerifyPart(bytes));
  tokura::kernels::SealSections(&bytes);
  const auto reader = tokura::kernels::PartReader::Open(bytes);
  if (reader.ok()) {
    tokura::kernels::DecodeAll(*reader, bytes);
  }
  return 0;
}
