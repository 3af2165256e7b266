# Installs the build tree BUILD into a new prefix below WORK. Then builds and runs the project in this folder and the
# project in the folder EXAMPLE with the installed library and the torch in TORCH_DIR.
#
#   cmake -DBUILD=... -DPACKAGE_DIR=... -DINCLUDE_DIR=... -DWORK=... -DEXAMPLE=... -DTORCH_DIR=... -DGENERATOR=...
#         -DCXX=... -P test.cmake
file(REMOVE_RECURSE ${WORK})
function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
set(configure ${CMAKE_COMMAND} -G ${GENERATOR} -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=${CXX}
  -DTensorion_DIR=${WORK}/prefix/${PACKAGE_DIR})
run(${configure} -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK}/build -DTorch_DIR=${TORCH_DIR})
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/consumer)
run(${configure} -S ${EXAMPLE} -B ${WORK}/example -DTorch_DIR=${TORCH_DIR})
run(${CMAKE_COMMAND} --build ${WORK}/example)
run(${CMAKE_COMMAND} -E chdir ${WORK} ${WORK}/example/train)
if(EXISTS ${WORK}/prefix/bin/tensorion)
  run(${WORK}/prefix/bin/tensorion --version)
endif()

# Only public headers are installed.
file(GLOB_RECURSE installed RELATIVE ${WORK}/prefix/${INCLUDE_DIR}/tensorion ${WORK}/prefix/${INCLUDE_DIR}/tensorion/*)
list(SORT installed)
set(public coefficients.h fallback.h lmo.h norms.h optimizer.h param_groups.h polar.h schedule.h scratch.h slices.h step.h
    unfolding.h)
if(NOT installed STREQUAL public)
  message(FATAL_ERROR "expected the public headers ${public} to be installed, got ${installed}")
endif()
file(WRITE ${WORK}/internal.cpp "#include <tensorion/polar/gram_matrix.h>\n")
execute_process(COMMAND ${CXX} -std=c++20 -fsyntax-only -I${WORK}/prefix/${INCLUDE_DIR} ${WORK}/internal.cpp
  RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE message)
if(result EQUAL 0 OR NOT message MATCHES "tensorion/polar/gram_matrix\\.h: No such file")
  message(FATAL_ERROR "an internal header should not be found, got ${result}: ${message}")
endif()

# The package rejects another minor version of torch.
file(WRITE ${WORK}/torch/TorchConfig.cmake "")
file(WRITE ${WORK}/torch/TorchConfigVersion.cmake
  "set(PACKAGE_VERSION 1.2.3)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n")
execute_process(COMMAND ${configure} -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK}/refused -DTorch_DIR=${WORK}/torch
  RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE message)
string(REGEX REPLACE "[ \n]+" " " message "${message}")
if(result EQUAL 0 OR NOT message MATCHES "was built with torch .* only, got torch 1\\.2\\.3 in ")
  message(FATAL_ERROR "torch 1.2.3 should have been refused, got ${result}: ${message}")
endif()
