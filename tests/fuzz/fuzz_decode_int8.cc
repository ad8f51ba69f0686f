// Damaged layers of the codec "int8", and any values through its encoder.

#include "part_fuzzing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tokura::kernels::DecodeFuzzed("int8", data, size);
  tokura::kernels::EncodeFuzzed("int8", data, size);
  return 0;
}
