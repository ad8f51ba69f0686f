// Damaged layers of the codec "kivi4", and any values through its encoder.

#include "part_fuzzing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tokura::kernels::DecodeFuzzed("kivi4", data, size);
  tokura::kernels::EncodeFuzzed("kivi4", data, size);
  return 0;
}
