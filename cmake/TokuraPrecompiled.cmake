# Precompiled third-party headers, for developers', sanitizer and fuzz builds, where reading them is a third of the work.
# Release builds go without, so that every file is still checked to include what it uses. Nothing of the project is in
# them: an edit compiles again what includes it, no more. Off with -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON.

# A directory whose files have options of their own (-O3, -mavx2) sets this to OFF: GCC refuses headers compiled with others.
set(TOKURA_PRECOMPILE OFF)
if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
  set(TOKURA_PRECOMPILE ON)
endif()

set(precompiled_source ${CMAKE_BINARY_DIR}/generated/precompiled.cc)
file(CONFIGURE OUTPUT ${precompiled_source} CONTENT "// Only here because a target needs a source.\n")

function(tokura_precompiled_headers name)
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${precompiled_source})
  target_link_libraries(${name} PRIVATE absl::statusor absl::strings absl::any_invocable protobuf::libprotobuf
    prometheus-cpp::core Threads::Threads)
  target_precompile_headers(${name} PRIVATE
    <algorithm> <atomic> <condition_variable> <deque> <functional> <map> <memory> <mutex> <optional> <set> <span> <string>
    <string_view> <unordered_map> <utility> <vector>
    <absl/functional/any_invocable.h> <absl/status/statusor.h> <absl/strings/str_cat.h>
    <google/protobuf/arena.h> <google/protobuf/extension_set.h> <google/protobuf/generated_message_util.h>
    <google/protobuf/io/coded_stream.h> <google/protobuf/map.h> <google/protobuf/message.h>
    <google/protobuf/repeated_field.h> <google/protobuf/unknown_field_set.h> <prometheus/registry.h>)
endfunction()

if(TOKURA_PRECOMPILE)
  tokura_precompiled_headers(tokura_headers)  # of libraries
  if(TOKURA_TESTS)
    tokura_precompiled_headers(tokura_test_headers)  # of test programs, which are -fPIE, where libraries are -fPIC
    target_precompile_headers(tokura_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
    target_link_libraries(tokura_test_headers PRIVATE GTest::gmock GTest::gtest)
    set_target_properties(tokura_test_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(tokura_test_headers PRIVATE -fPIE)
    tokura_test_options(tokura_test_headers)
  endif()
endif()

# tokura_precompile(NAME HEADERS): NAME, declared in this directory, uses HEADERS, one of the targets above
function(tokura_precompile name headers)
  if(TOKURA_PRECOMPILE)
    target_precompile_headers(${name} REUSE_FROM ${headers})
  endif()
endfunction()
