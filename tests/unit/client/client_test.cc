// The blocking client on the real transport: what its handles promise.

#include "tokura/client.h"

#include <gtest/gtest.h>

#include "tests/unit/client/client_testing.h"

namespace tokura {
namespace {

TEST(BlockingClientTest, HandlesMayOutliveTheirClient) {
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Create({});
  ASSERT_TRUE(client.ok()) << client.status();
  const NamespaceRef ns = *(*client)->OpenNamespace(SmallSpec());
  const TokenChain chain = MakeChain(*ns, 2);
  EngineMemory memory(*ns, 2);
  Match match;
  match.fingerprint = ns->fingerprint();
  match.block_tokens = ns->spec().block_tokens;
  match.keys.assign(chain.keys().begin(), chain.keys().end());
  std::unique_ptr<GetHandle> waited = (*client)->StartGet(ns, match, memory.View());
  std::unique_ptr<GetHandle> dropped = (*client)->StartGet(ns, match, memory.View());
  std::unique_ptr<PutHandle> put = (*client)->StartPut(ns, chain, memory.View());
  client->reset();
  waited->Cancel();
  EXPECT_EQ(waited->Wait().prefix_ok(), 0u);
  EXPECT_EQ(waited->Wait().blocks.size(), 2u);
  dropped.reset();
  put->Cancel();
  put->WaitReleased();
  EXPECT_EQ(put->Wait().stored(), 0u);
}

TEST(BlockingClientTest, WaitReadyWithoutTimeAnswersAtOnce) {
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Create({});
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ((*client)->WaitReady(Duration::zero()).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ((*client)->WaitReady(Duration::min()).code(), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace tokura
