#pragma once

// The inner loops of the error record in plain C++: the definition of what the functions of
// kernel_set.h compute. Internal to kernels/.

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_set.h"

namespace tokura::kernels {

void ScalarRecordScores(const RecordKeys& keys, const RecordQueries& queries, float* scores);
void ScalarRecordSoftmax(uint32_t tokens, float* scores);
void ScalarRecordOutputs(const RecordValues& values, const float* weights, float* out);
void ScalarRecordSums(const float* exact, const float* decoded, size_t count, RecordSums* sums);

}  // namespace tokura::kernels
