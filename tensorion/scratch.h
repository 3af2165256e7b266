// Scratch memory. On the CPU the library keeps the memory of intermediate results for the next call.
#pragma once

namespace tensorion {

// Frees the scratch memory. Does nothing if a step on another thread is using it.
void release_scratch();

}  // namespace tensorion
