# Installs the CMake package: find_package(Tensorion) defines the target Tensorion::tensorion.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tensorion)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/TensorionConfig.cmake.in TensorionConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(TensorionConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/TensorionConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/TensorionConfigVersion.cmake DESTINATION ${package_dir})
install(EXPORT TensorionTargets NAMESPACE Tensorion:: DESTINATION ${package_dir})
