#include "client-lib/src/layer_progress.h"

#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tokura {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Report = std::pair<size_t, uint32_t>;

class LayerProgressTest : public ::testing::Test {
 protected:
  void Fail(std::vector<size_t> parts) { progress_.OnFailed(parts); }
  std::vector<Report> reports_;
  LayerProgress progress_{[this](size_t g, uint32_t l) { reports_.emplace_back(g, l); }, 10};
};

TEST_F(LayerProgressTest, ReportsALayerWhenTheLastPartHasIt) {
  const size_t a = progress_.AddPart(0, 2);
  const size_t b = progress_.AddPart(0, 2);
  progress_.OnDecoded(a);
  progress_.OnDecoded(a);
  EXPECT_THAT(reports_, IsEmpty());
  progress_.OnDecoded(b);
  EXPECT_THAT(reports_, ElementsAre(Report{0, 10}));
  progress_.OnDecoded(b);
  EXPECT_THAT(reports_, ElementsAre(Report{0, 10}, Report{0, 11}));
}

TEST_F(LayerProgressTest, NobodyWaitsForAFailedPart) {
  const size_t a = progress_.AddPart(1, 2);
  const size_t b = progress_.AddPart(1, 2);
  progress_.OnDecoded(a);
  Fail({b});
  Fail({b});
  EXPECT_THAT(reports_, ElementsAre(Report{1, 10}));
  progress_.OnDecoded(b);  // a straggler of the failed part
  progress_.OnDecoded(a);
  EXPECT_THAT(reports_, ElementsAre(Report{1, 10}, Report{1, 11}));
  EXPECT_TRUE(progress_.Started(a));
  EXPECT_FALSE(progress_.Started(b));
}

TEST_F(LayerProgressTest, PartsOfAFailedBlockDoNotSpeakForOneAnother) {
  const size_t a = progress_.AddPart(0, 2);
  const size_t b = progress_.AddPart(0, 2);
  progress_.OnDecoded(b);
  Fail({a, b});
  EXPECT_THAT(reports_, IsEmpty()) << "no block succeeded";
  const size_t c = progress_.AddPart(1, 1);
  const size_t d = progress_.AddPart(1, 1);
  const size_t other = progress_.AddPart(1, 1);
  progress_.OnDecoded(other);
  progress_.OnDecoded(d);
  Fail({c, d});
  EXPECT_THAT(reports_, ElementsAre(Report{1, 10}));
}

TEST_F(LayerProgressTest, NothingIsReportedWhenEverythingFailed) {
  const size_t a = progress_.AddPart(0, 2);
  const size_t b = progress_.AddPart(0, 2);
  Fail({a});
  Fail({b});
  EXPECT_THAT(reports_, IsEmpty());
}

}  // namespace
}  // namespace tokura
