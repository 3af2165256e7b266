// Compiled with the include path of the module `unfolding`, which does not have the header of the module
// `polar`.
#include "tensorion/polar.h"
#include "tensorion/unfolding.h"
