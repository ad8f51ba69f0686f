# Puts libtokura, the UCX it was built with and what else it needs into tokura/_lib of the wheel. `library` names libtokura,
# `strip` the program.
#
# Left to the system: the C and C++ runtime; OpenSSL with zlib, which Python loads too and of which one process should have one;
# and what belongs to the drivers of a site's network. The rest is the distribution's (Abseil, Protobuf, …) and would be missing elsewhere.

set(destination ${CMAKE_INSTALL_PREFIX}/tokura/_lib)
file(MAKE_DIRECTORY ${destination}/ucx)

function(place file directory)  # the file that `file` leads to, under its name, without debug sections
  get_filename_component(name ${file} NAME)
  get_filename_component(real ${file} REALPATH)
  file(COPY_FILE ${real} ${directory}/${name})
  execute_process(COMMAND ${strip} --strip-unneeded ${directory}/${name} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(GET_RUNTIME_DEPENDENCIES LIBRARIES ${library} RESOLVED_DEPENDENCIES_VAR dependencies UNRESOLVED_DEPENDENCIES_VAR missing
  PRE_EXCLUDE_REGEXES "^(ld-linux.*|lib(c|m|dl|rt|pthread|stdc\\+\\+|gcc_s|ssl|crypto|z|ibverbs|rdmacm|mlx.*|nl-.*|numa))\\.so")
if(missing)
  message(FATAL_ERROR "libtokura needs what is not here: ${missing}")
endif()
foreach(file ${dependencies})
  place(${file} ${destination})
endforeach()

# UCX finds its transports in ucx/ beside itself.
foreach(file ${dependencies})
  if(file MATCHES "/libucs\\.so\\.0$")
    get_filename_component(ucx ${file} DIRECTORY)
    file(GLOB modules ${ucx}/ucx/libuc[tm]_*.so.0)
    foreach(module ${modules})
      place(${module} ${destination}/ucx)
    endforeach()
  endif()
endforeach()

# The library looks for what it needs beside itself, and nowhere on the machine that built it.
file(COPY_FILE ${library} ${destination}/libtokura.so.1)
file(RPATH_SET FILE ${destination}/libtokura.so.1 NEW_RPATH "$ORIGIN")
execute_process(COMMAND ${strip} --strip-unneeded ${destination}/libtokura.so.1 COMMAND_ERROR_IS_FATAL ANY)

# What the package checks before it loads anything. That this loads the library here shows that nothing is missing.
execute_process(
  COMMAND ${python} -c "import ctypes, sys; f = ctypes.CDLL(sys.argv[1]).tokura_ucx_version_built; f.restype = ctypes.c_char_p; print(f().decode(), end='')"
          ${destination}/libtokura.so.1
  OUTPUT_VARIABLE ucx_version COMMAND_ERROR_IS_FATAL ANY)
file(WRITE ${CMAKE_INSTALL_PREFIX}/tokura/_build.py
  "\"\"\"Written when the wheel is made.\"\"\"\n\n# Version of the UCX that the package was built with and carries.\nUCX_VERSION = \"${ucx_version}\"\n")
