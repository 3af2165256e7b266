# A module is a target that can include only its own headers and those of the modules in DEPS. An include against the
# direction of the dependencies does not compile.
#
#   tensorion_module(<target> SOURCES <path>... [HEADERS <path>...] [INTERNAL_HEADERS <path>...]
#                    [PRIVATE_HEADERS <path>...] [DEPS <target>...])
#
# Paths are relative to the root of the repository, as in #include "tensorion/unfolding.h". HEADERS are public and
# installed, through the directory property TENSORION_HEADERS. INTERNAL_HEADERS are visible to the modules that depend
# on this one, and PRIVATE_HEADERS only to the module itself.
function(tensorion_module target)
  cmake_parse_arguments(arg "" "" "HEADERS;INTERNAL_HEADERS;PRIVATE_HEADERS;SOURCES;DEPS" ${ARGN})
  set_property(DIRECTORY APPEND PROPERTY TENSORION_HEADERS ${arg_HEADERS})
  tensorion_view(view ${target} ${arg_HEADERS} ${arg_INTERNAL_HEADERS})
  tensorion_view(private_view ${target}-private ${arg_PRIVATE_HEADERS})
  list(TRANSFORM arg_SOURCES PREPEND ${PROJECT_SOURCE_DIR}/)
  add_library(${target} OBJECT ${arg_SOURCES})
  target_include_directories(${target} PUBLIC ${view} PRIVATE ${private_view})
  target_link_libraries(${target} PUBLIC ${arg_DEPS} tensorion_torch)
  tensorion_precompile(${target})
endfunction()

# Sets `variable` to a folder from which only these headers can be included.
function(tensorion_view variable name)
  set(view ${PROJECT_BINARY_DIR}/include/${name})
  file(MAKE_DIRECTORY ${view})
  foreach(header ${ARGN})
    get_filename_component(folder ${view}/${header} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${header} ${view}/${header} SYMBOLIC)
  endforeach()
  set(${variable} ${view} PARENT_SCOPE)
endfunction()

# Adds precompiled headers, since ATen's headers take ten seconds per file without them. If TENSORION_PRECOMPILED is
# "torch", they include torch/optim.h, which takes twice as long to load.
function(tensorion_precompile target)
  set(headers <ATen/ATen.h>)
  set(name tensorion_pch)
  if(TENSORION_PRECOMPILED STREQUAL "torch")
    list(APPEND headers <torch/optim.h>)
    set(name tensorion_torch_pch)
  endif()
  if(NOT TARGET ${name})
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${name}.cpp CONTENT "")
    add_library(${name} OBJECT ${PROJECT_BINARY_DIR}/${name}.cpp)
    target_link_libraries(${name} PUBLIC tensorion_torch)
    target_precompile_headers(${name} PRIVATE ${headers})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${name})
endfunction()
