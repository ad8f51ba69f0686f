# Compiler settings of every target, and the functions that declare targets.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

find_program(CCACHE ccache)
if(CCACHE)
  # What ccache needs to be told before it stores files that use precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()

# No contraction: encoded bytes are the same on every machine (DESIGN: reproducible bytes).
add_compile_options(-Wall -Wextra -Werror -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13 AND CMAKE_BUILD_TYPE STREQUAL "Release")
  # At -O3 GCC 12 sees overlaps in inlined members of std::string that are none (GCC bug 105329).
  add_compile_options(-Wno-restrict)
endif()
# __FILE__ (TOKURA_CHECK) names files as the repository does, not where this machine keeps it.
add_compile_options(-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)
if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
  # Line tables are enough for stack traces and keep links fast on two cores.
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
endif()
if(TOKURA_SANITIZER STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(TOKURA_SANITIZER STREQUAL "thread")
  add_compile_options(-fsanitize=thread)
  add_link_options(-fsanitize=thread)
endif()
if(TOKURA_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# tokura_library(NAME SOURCES a.cc… DEPS x…)
function(tokura_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/client-lib/include)
  target_link_libraries(${name} PUBLIC ${ARG_DEPS})
  tokura_precompile(${name} tokura_headers)
endfunction()

# tokura_program(NAME SOURCES a.cc… DEPS x…): a program in bin/
function(tokura_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/client-lib/include)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
endfunction()

# tokura_test_options(NAME): what the code of tests does without
function(tokura_test_options name)
  if(TOKURA_SANITIZER STREQUAL "address")
    # Tests are there to run the libraries, which have it. In tests it would be a third of compiling this build.
    target_compile_options(${name} PRIVATE -fno-sanitize=undefined)
  endif()
endfunction()

# tokura_test_library(NAME SOURCES a.cc… DEPS x…): what several test programs share
function(tokura_test_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/client-lib/include)
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} GTest::gmock GTest::gtest)
  tokura_precompile(${name} tokura_test_headers)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIE)  # as the programs that it goes into
  tokura_test_options(${name})
endfunction()

# tokura_test(NAME SOURCES a.cc… DEPS x… [TIMEOUT s] [LABELS l…] [LONG FILTER] [LONG_LABELS l…]): one GoogleTest program,
# registered as the CTest test NAME, and as NAME_long for what FILTER selects, so that other tests run beside it.
function(tokura_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;LONG" "SOURCES;DEPS;LABELS;LONG_LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/client-lib/include)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  tokura_precompile(${name} tokura_test_headers)
  tokura_test_options(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(ARG_LONG)
    tokura_register_test(${name} PROGRAM ${name} FILTER "-${ARG_LONG}" TIMEOUT ${ARG_TIMEOUT} LABELS ${ARG_LABELS})
    # A name of its own, because GoogleTest names files of results after the program.
    add_custom_command(TARGET ${name} POST_BUILD VERBATIM
      COMMAND ${CMAKE_COMMAND} -E create_symlink ${name} ${CMAKE_BINARY_DIR}/tests/${name}_long)
    tokura_register_test(${name}_long PROGRAM ${CMAKE_BINARY_DIR}/tests/${name}_long FILTER "${ARG_LONG}"
      TIMEOUT ${ARG_TIMEOUT} LABELS ${ARG_LONG_LABELS})
    set_tests_properties(${name}_long PROPERTIES COST 100)  # first, so that nothing is left alone at the end
  else()
    tokura_register_test(${name} PROGRAM ${name} TIMEOUT ${ARG_TIMEOUT} LABELS ${ARG_LABELS})
  endif()
endfunction()

function(tokura_register_test name)
  cmake_parse_arguments(ARG "" "PROGRAM;FILTER;TIMEOUT" "LABELS" ${ARGN})
  if(TOKURA_SANITIZER)  # the checks cost a factor, not more: a hang is still found
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 5")
  endif()
  set(environment "TOKURA_SOURCE_DIR=${CMAKE_SOURCE_DIR};TOKURA_BIN_DIR=${CMAKE_BINARY_DIR}/bin;UCX_HANDLE_ERRORS=none;UCX_WARN_UNUSED_ENV_VARS=n")
  if(TOKURA_SANITIZER STREQUAL "thread")
    # UCX hooks mmap and its kin when it is loaded, which ThreadSanitizer does not survive: a program
    # crashes at its first thread. Only the environment is early enough to stop that.
    list(APPEND environment "UCX_MEM_EVENTS=n")
  endif()
  set(arguments)
  if(ARG_FILTER)
    set(arguments --gtest_filter=${ARG_FILTER})
  endif()
  add_test(NAME ${name} COMMAND ${ARG_PROGRAM} ${arguments})
  if("integration" IN_LIST ARG_LABELS)  # real deadlines: nothing else may take the cores
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}" ENVIRONMENT "${environment}")
endfunction()

# tokura_fuzz(NAME SOURCES a.cc… DEPS x…)
function(tokura_fuzz name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/client-lib/include)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
endfunction()
