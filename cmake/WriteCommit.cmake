# Run as: cmake -DSOURCE_DIR=… -DOUTPUT=… -DVERSION=… -P WriteCommit.cmake
# Writes OUTPUT with the version and the Git commit, only when they changed, so that nothing is rebuilt without need.

set(commit "unknown")
if(EXISTS ${SOURCE_DIR}/.git)
  execute_process(COMMAND git describe --always --dirty --abbrev=12 --exclude=*
    WORKING_DIRECTORY ${SOURCE_DIR} OUTPUT_VARIABLE described RESULT_VARIABLE failed
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT failed)
    set(commit ${described})
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT
  "#pragma once\n#define TOKURA_BUILD_VERSION \"${VERSION}\"\n#define TOKURA_BUILD_COMMIT \"${commit}\"\n")
