// Damaged layers of the codec "raw", and any values through its encoder.

#include "part_fuzzing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tokura::kernels::DecodeFuzzed("raw", data, size);
  tokura::kernels::EncodeFuzzed("raw", data, size);
  return 0;
}
