#pragma once

#include "kernels/profile.h"

namespace tokura::kernels {

// A small profile whose every number follows from its place: a full group of two layers with two
// heads, a sliding one and a latent one.
ProfileData SampleProfile();

}  // namespace tokura::kernels
