// Accesses of at most eight examples: step.cpp with half as many lanes. Whatever depends on their number is in a
// namespace of its own, as a linker takes two functions of one name for the same.

#include "step.h"  // what callers see is the same for both

#define HAM_LANES 8
#define ham ham::of_eight
#include "step.cpp"
