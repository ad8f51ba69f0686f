#pragma once

// The namespace of what is compiled once per instruction set. kernels/CMakeLists.txt compiles
// kernels.cc several times, with the compiler's flags for an instruction set and TOKURA_ISA naming
// it. Everything that it defines, inline functions in headers included, has to be in this
// namespace: two definitions of one symbol are one to the linker, which may then hand the
// instructions of a new processor to an old one. For the same reason nothing of the standard
// library is used that the compiler may leave out of line (std::vector, std::min); the test
// isa_symbols looks for that.

#if !defined(TOKURA_ISA)
#error "compiled once per instruction set, by kernels/CMakeLists.txt"
#endif

namespace tokura::kernels::TOKURA_ISA {}
