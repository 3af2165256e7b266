// Compiled with what the module of unfoldings sees: the first include is its own, the second is not.
#include "tensorion/polar.h"
#include "tensorion/unfolding.h"
