# Finds the libtorch in the torch package of the active Python, unless the parent project has already found Torch, or
# CMAKE_PREFIX_PATH or Torch_DIR names one. Defines the target tensorion_torch, which the library links.
if(NOT Torch_DIR AND NOT TARGET torch)
  find_package(Python3 COMPONENTS Interpreter QUIET)
  if(Python3_FOUND)
    # pip builds in an isolated environment, which it sets up with PYTHONPATH. The flag -E ignores it and finds the
    # torch that the package will run with. Torch is not imported, because that takes seconds and needs device libraries.
    set(find_torch "import importlib.util; print(*importlib.util.find_spec('torch').submodule_search_locations)")
    foreach(flags "" -E)
      execute_process(
        COMMAND ${Python3_EXECUTABLE} ${flags} -c "${find_torch}"
        OUTPUT_VARIABLE tensorion_torch_prefix RESULT_VARIABLE result
        OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      if(result EQUAL 0)
        list(APPEND CMAKE_PREFIX_PATH ${tensorion_torch_prefix}/share/cmake)
        break()
      endif()
    endforeach()
  endif()
endif()
# The config of a CUDA build of torch requires the CUDA toolkit unless this target exists. Only CUDA sources need the
# toolkit, and there are none here.
if(NOT TARGET torch::cudart)
  add_library(torch::cudart INTERFACE IMPORTED GLOBAL)
endif()
if(NOT TARGET torch)
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)  # A parent project links torch too.
  # Torch's config warns about optional libraries that are not needed here.
  find_package(Torch CONFIG)
  unset(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL)
  if(NOT Torch_FOUND)
    message(FATAL_ERROR
      "Tensorion needs an installed torch to build against, but ${Python3_EXECUTABLE} found none. Install "
      "torch into that Python first, or set Python3_EXECUTABLE or CMAKE_PREFIX_PATH.")
  endif()
endif()
if(Torch_VERSION VERSION_LESS 2.7)
  message(FATAL_ERROR "Tensorion needs torch 2.7 or later, got ${Torch_VERSION} in ${Torch_DIR}.")
endif()
get_filename_component(TENSORION_TORCH_LIBRARY_DIR ${TORCH_LIBRARY} DIRECTORY)
message(STATUS "Tensorion: torch ${Torch_VERSION} in ${TENSORION_TORCH_LIBRARY_DIR}")

# Torch's headers, and the libraries that every build of torch has. Devices are accessed through torch's dispatcher, so
# the same binaries load with CPU and CUDA builds of one version.
add_library(tensorion_torch INTERFACE)
target_include_directories(tensorion_torch SYSTEM INTERFACE $<TARGET_PROPERTY:torch,INTERFACE_INCLUDE_DIRECTORIES>)
target_compile_definitions(tensorion_torch INTERFACE $<TARGET_PROPERTY:torch,INTERFACE_COMPILE_DEFINITIONS>)
target_compile_options(tensorion_torch INTERFACE $<TARGET_PROPERTY:torch,INTERFACE_COMPILE_OPTIONS>)
target_link_libraries(tensorion_torch INTERFACE torch_cpu c10)
