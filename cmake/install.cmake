# What `cmake --install` puts where, in components that deploy/package.sh makes Debian packages of:
#   daemon   telegradd and its workers
#   cli      telegrad and telegrad-opt
#   dev      the C++ client: one static library, headers, and how CMake and pkg-config find them
if(NOT TELEGRAD_SERVER)
  return()
endif()
if(TELEGRAD_SHARED)
  install(CODE "message(FATAL_ERROR \"a build with shared libraries stays where it is: install the preset release\")" ALL_COMPONENTS)
  return()
endif()

install(TARGETS telegradd telegrad-compile-worker telegrad-device-worker RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT daemon)
install(TARGETS telegrad telegrad-opt RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT cli)

# The libraries of the house that a program of the client links: those reached from telegrad_client, from the progress
# shown at terminals, and from the importer of ONNX files. Libraries of others are named in the config and in the .pc
# file.
set(reached)
set(open telegrad_client telegrad_terminal telegrad_frontend_onnx)
while(open)
  list(POP_FRONT open target)
  if(target IN_LIST reached OR NOT target MATCHES "^telegrad_" OR NOT TARGET ${target})
    continue()
  endif()
  list(APPEND reached ${target})
  get_target_property(libraries ${target} INTERFACE_LINK_LIBRARIES)
  if(libraries)
    list(APPEND open ${libraries})
  endif()
endwhile()

set(archive ${PROJECT_BINARY_DIR}/libtelegrad.a)
set(script "CREATE ${archive}\n")
set(inputs)
foreach(target ${reached})
  get_target_property(type ${target} TYPE)
  get_target_property(folder ${target} SOURCE_DIR)
  file(RELATIVE_PATH relative ${PROJECT_SOURCE_DIR} ${folder})
  # Headers under the paths by which they include each other, without those of tests.
  install(DIRECTORY ${folder}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/telegrad/${relative} COMPONENT dev
          FILES_MATCHING PATTERN "*.h" PATTERN "*.def" PATTERN "test_*.h" EXCLUDE PATTERN "testing" EXCLUDE)
  if(type STREQUAL "STATIC_LIBRARY")
    string(APPEND script "ADDLIB $<TARGET_FILE:${target}>\n")
    list(APPEND inputs ${target})
  endif()
endforeach()
install(DIRECTORY ${PROJECT_BINARY_DIR}/proto/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/telegrad COMPONENT dev
        FILES_MATCHING PATTERN "*.pb.h" PATTERN "CMakeFiles" EXCLUDE)
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/libtelegrad.mri CONTENT "${script}SAVE\nEND\n")
add_custom_command(OUTPUT ${archive} COMMAND ${CMAKE_AR} -M < ${PROJECT_BINARY_DIR}/libtelegrad.mri
                   DEPENDS ${inputs} ${PROJECT_BINARY_DIR}/libtelegrad.mri VERBATIM)
add_custom_target(libtelegrad DEPENDS ${archive})
install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)

include(CMakePackageConfigHelpers)
set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/telegrad)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/telegrad-config.cmake.in
                              ${PROJECT_BINARY_DIR}/telegrad-config.cmake INSTALL_DESTINATION ${config_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/telegrad-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/telegrad-config.cmake ${PROJECT_BINARY_DIR}/telegrad-config-version.cmake
        DESTINATION ${config_folder} COMPONENT dev)
string(JOIN " " TELEGRAD_IMAGE_REQUIRES ${TELEGRAD_IMAGE_PACKAGES})
configure_file(${PROJECT_SOURCE_DIR}/cmake/telegrad.pc.in ${PROJECT_BINARY_DIR}/telegrad.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/telegrad.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
