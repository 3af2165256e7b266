# Finds the libtorch that the active Python's torch package ships, unless
# CMAKE_PREFIX_PATH or Torch_DIR already names one.
if(NOT Torch_DIR)
  find_package(Python3 COMPONENTS Interpreter QUIET)
  if(Python3_FOUND)
    execute_process(
      COMMAND ${Python3_EXECUTABLE} -c "import torch; print(torch.utils.cmake_prefix_path)"
      OUTPUT_VARIABLE tensorion_torch_prefix
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    list(APPEND CMAKE_PREFIX_PATH ${tensorion_torch_prefix})
  endif()
endif()
# A CUDA build of torch asks for the CUDA toolkit unless this target exists; only CUDA sources need
# it, and there are none here.
add_library(torch::cudart INTERFACE IMPORTED)
# Torch's own config warns about optional CUDA-era libraries that nothing here needs.
find_package(Torch CONFIG)
if(NOT Torch_FOUND)
  message(FATAL_ERROR
    "Tensorion builds against an installed torch, and none was found by ${Python3_EXECUTABLE}. Install "
    "torch into that Python (with pip, build by `pip install --no-build-isolation`), or set "
    "Python3_EXECUTABLE or CMAKE_PREFIX_PATH.")
endif()
get_filename_component(TENSORION_TORCH_LIBRARY_DIR ${TORCH_LIBRARY} DIRECTORY)
message(STATUS "Tensorion: torch ${Torch_VERSION} in ${TENSORION_TORCH_LIBRARY_DIR}")
