#pragma once

#include <string>

namespace tokura::net {

// The version that was compiled against, and the one that was loaded: "1.22". Thread-safe.
std::string UcxHeaderVersion();
std::string UcxLibraryVersion();

}  // namespace tokura::net
