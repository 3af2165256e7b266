// Memory for intermediate results, which on the CPU is kept from one call to the next.
#pragma once

namespace tensorion {

// Gives back the memory that is kept, unless a step on another thread is using it.
void release_scratch();

}  // namespace tensorion
