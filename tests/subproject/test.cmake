# Builds the project in this folder, which includes the source tree SOURCE, in two ways. With add_subdirectory and a
# shared library it is only configured. With FetchContent and a static library it is also built and run.
#
#   cmake -DSOURCE=... -DWORK=... -DTORCH_DIR=... -DGENERATOR=... -DCXX=... -P test.cmake
file(REMOVE_RECURSE ${WORK})
function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

set(configure ${CMAKE_COMMAND} -G ${GENERATOR} -S ${CMAKE_CURRENT_LIST_DIR} -DCMAKE_BUILD_TYPE=MinSizeRel
  -DCMAKE_CXX_COMPILER=${CXX} -DTENSORION_SOURCE=${SOURCE} -DTorch_DIR=${TORCH_DIR})
run(${configure} -B ${WORK}/shared -DBY_ADD_SUBDIRECTORY=ON -DBUILD_SHARED_LIBS=ON)
run(${configure} -B ${WORK}/static)
run(${CMAKE_COMMAND} --build ${WORK}/static --parallel 2)
run(${WORK}/static/consumer)

run(${CMAKE_COMMAND} --install ${WORK}/static --prefix ${WORK}/prefix)
file(GLOB_RECURSE installed RELATIVE ${WORK}/prefix ${WORK}/prefix/*)
if(NOT installed STREQUAL "bin/consumer")
  message(FATAL_ERROR "expected bin/consumer to be installed and nothing else, got ${installed}")
endif()
