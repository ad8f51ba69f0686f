// Damaged layers of every codec, and any values through its encoder. The first byte chooses the
// codec: one program covers the whole table, codecs of the future included.

#include "kernels/codec.h"
#include "part_fuzzing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  const auto presets = tokura::kernels::CodecPresets();
  const std::string codec(presets[data[0] % presets.size()].name);
  tokura::kernels::DecodeFuzzed(codec, data + 1, size - 1);
  tokura::kernels::EncodeFuzzed(codec, data + 1, size - 1);
  return 0;
}
