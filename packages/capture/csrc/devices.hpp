// The guard of CUDA devices in a process that has none.
#pragma once

namespace flambeau {

// Put a stand-in for the guard of CUDA devices into torch's table, for good. Only for a build for CUDA that sees no
// device.
void keep_cuda_guard();

}  // namespace flambeau
