// Each setting of ucx_settings.cc takes effect, and the operator's environment wins.

#include <cstdio>
#include <cstdlib>

#include <ucm/api/ucm.h>
#include <ucs/config/global_opts.h>

#include "gtest/gtest.h"
#include "ucx_test_util.h"

namespace tokura::net {
namespace {

class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~ScopedVariable() { unsetenv(name_); }

 private:
  const char* const name_;
};

std::string Printed(const ucp_config_t* config) {
  char* text = nullptr;
  size_t size = 0;
  FILE* stream = open_memstream(&text, &size);
  ucp_config_print(config, stream, nullptr, UCS_CONFIG_PRINT_CONFIG);
  std::fclose(stream);
  const std::string result(text, size);
  std::free(text);
  return result;
}

// What a transport over TCP alone can carry in a header follows from the size of TCP's segments.
size_t HeaderBytesMaxOverTcp() {
  const ScopedVariable tcp("UCX_TLS", "tcp");
  auto context = UcxContext::Create({});
  EXPECT_TRUE(context.ok()) << context.status();
  auto transport = UcxTransport::Create(**context, {});
  EXPECT_TRUE(transport.ok()) << transport.status();
  ucp_worker_attr_t attributes = {};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER;
  EXPECT_EQ(ucp_worker_query(Impl(**transport).worker(), &attributes), UCS_OK);
  return attributes.max_am_header;
}

TEST(UcxSettings, AreInTheConfiguration) {
  absl::StatusOr<UcxConfig> config = UcxConfig::Make();
  ASSERT_TRUE(config.ok()) << config.status();
  const std::string text = Printed(config->get());
  for (const char* line : {"UCX_RNDV_SCHEME=put_zcopy\n", "UCX_MAX_RNDV_RAILS=1\n",
                           "UCX_CM_USE_ALL_DEVICES=n\n", "UCX_RCACHE_ENABLE=n\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line;
  }
  EXPECT_NE(config->description().find("RNDV_SCHEME=put_zcopy"), std::string::npos);
}

TEST(UcxSettings, OperatorsEnvironmentWins) {
  const ScopedVariable scheme("UCX_RNDV_SCHEME", "get_zcopy");
  absl::StatusOr<UcxConfig> config = UcxConfig::Make();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_NE(Printed(config->get()).find("UCX_RNDV_SCHEME=get_zcopy\n"), std::string::npos);
  EXPECT_NE(config->description().find("RNDV_SCHEME=get_zcopy(environment)"), std::string::npos);
}

TEST(UcxSettings, SegmentSizeReachesTheTransport) {
  EXPECT_GT(HeaderBytesMaxOverTcp(), 60000u);
  const ScopedVariable segment("UCX_TCP_TX_SEG_SIZE", "16K");
  EXPECT_LT(HeaderBytesMaxOverTcp(), 17000u);
}

TEST(UcxSettings, UnusableOperatorsChoiceIsReportedWithTheSettings) {
  const ScopedVariable tcp("UCX_TLS", "tcp");
  const ScopedVariable devices("UCX_NET_DEVICES", "no-such-device");
  const auto context = UcxContext::Create({});
  EXPECT_TRUE(absl::IsUnavailable(context.status())) << context.status();
  EXPECT_NE(context.status().message().find("NET_DEVICES=no-such-device(environment)"),
            std::string::npos)
      << context.status();
}

TEST(UcxSettings, MemoryHooksAreOff) {
  SharedContext();
  const auto handler = [](ucm_event_type_t, ucm_event_t*, void*) {};
  // With hooks this would patch munmap, and succeed.
  EXPECT_EQ(ucm_set_event_handler(UCM_EVENT_VM_UNMAPPED, 1000, handler, nullptr),
            UCS_ERR_UNSUPPORTED);
  EXPECT_EQ(ucs_global_opts.warn_unused_env_vars, 0);
}

TEST(UcxSettings, LibraryIsTheOneCompiledAgainst) {
  EXPECT_EQ(UcxLibraryVersion(), UcxHeaderVersion());
}

}  // namespace
}  // namespace tokura::net
