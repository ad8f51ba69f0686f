// The boundary of the C ABI: nothing is thrown across it, and structs may grow on either side.

#include "client-lib/src/c_abi/boundary.h"

#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

// A struct whose first version had no `second`.
struct Grown {
  size_t struct_size;
  uint64_t first;
  uint64_t second;
};
// The same, one version on.
struct Newer {
  size_t struct_size;
  uint64_t first;
  uint64_t second;
  uint64_t third;
};

}  // namespace

namespace tokura::c_abi {

template <>
inline constexpr size_t kFirstBytes<Grown> = offsetof(Grown, second);

namespace {

using ::testing::HasSubstr;

TEST(Boundary, ExceptionsBecomeCodes) {
  tokura_error error{};
  EXPECT_EQ(Guarded(&error, []() -> absl::Status { throw std::runtime_error("broken"); }),
            TOKURA_INTERNAL);
  EXPECT_EQ(error.code, TOKURA_INTERNAL);
  EXPECT_STREQ(error.message, "broken");
  EXPECT_EQ(Guarded(&error, []() -> absl::Status { throw std::bad_alloc(); }),
            TOKURA_RESOURCE_EXHAUSTED);
  EXPECT_STREQ(error.message, "no memory");
  EXPECT_EQ(Guarded(nullptr, []() -> absl::Status { throw 7; }), TOKURA_INTERNAL);
  GuardedQuietly([] { throw std::runtime_error("nobody hears it"); });
  const auto make = []() -> absl::StatusOr<std::unique_ptr<int>> { throw std::bad_alloc(); };
  EXPECT_EQ(GuardedMake<int>(&error, make), nullptr);
}

TEST(Boundary, SuccessLeavesTheErrorAlone) {
  tokura_error error{TOKURA_ABORTED, "before"};
  EXPECT_EQ(Guarded(&error, [] { return absl::OkStatus(); }), TOKURA_OK);
  EXPECT_EQ(error.code, TOKURA_ABORTED);
  EXPECT_STREQ(error.message, "before");
}

TEST(Boundary, LongTextsAreCut) {
  tokura_error error{};
  EXPECT_EQ(Report(absl::UnknownError(std::string(5000, 'x')), &error), TOKURA_UNKNOWN);
  EXPECT_EQ(std::string(error.message), std::string(sizeof(error.message) - 1, 'x'));
}

TEST(Boundary, OlderCallersGetTheDefaultsOfWhatTheyDoNotKnow) {
  Grown ours{sizeof(Grown), 1, 2};
  Grown theirs{offsetof(Grown, second), 10, 20};  // 20 is not theirs to say
  ASSERT_TRUE(ReadStruct(&theirs, "grown", &ours).ok());
  EXPECT_EQ(ours.first, 10u);
  EXPECT_EQ(ours.second, 2u);
  theirs.second = 99;
  ASSERT_TRUE(WriteStruct(ours, "grown", &theirs, offsetof(Grown, second)).ok());
  EXPECT_EQ(theirs.second, 99u);  // beyond what the caller has
  EXPECT_EQ(theirs.struct_size, offsetof(Grown, second));
}

TEST(Boundary, NewerCallersMayNotUseWhatTheLibraryDoesNotKnow) {
  Newer newer{sizeof(Newer), 1, 2, 0};
  Grown ours{};
  auto* theirs = reinterpret_cast<Grown*>(&newer);
  ASSERT_TRUE(ReadStruct(theirs, "grown", &ours).ok());
  EXPECT_EQ(ours.second, 2u);
  newer.third = 3;
  const absl::Status status = ReadStruct(theirs, "grown", &ours);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("update the library"));
  ASSERT_TRUE(WriteStruct(ours, "grown", theirs, sizeof(Newer)).ok());
  EXPECT_EQ(newer.third, 0u);  // what the library does not know it says nothing of
}

TEST(Boundary, StructsThatWereNotSetUpAreRefused) {
  Grown ours{};
  for (const size_t size : {size_t{0}, size_t{8}, size_t{1} << 40}) {
    Grown theirs{size, 0, 0};
    const absl::Status status = ReadStruct(&theirs, "grown", &ours);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << size;
    EXPECT_THAT(std::string(status.message()), HasSubstr("grown has struct_size"));
    EXPECT_FALSE(WriteStruct(ours, "grown", &theirs, size).ok()) << size;
  }
  EXPECT_FALSE(ReadStruct<Grown>(nullptr, "grown", &ours).ok());
  EXPECT_FALSE(WriteStruct<Grown>(ours, "grown", nullptr, sizeof(Grown)).ok());
}

}  // namespace
}  // namespace tokura::c_abi
