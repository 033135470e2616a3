# TELEGRAD_STATIC: programs that need nothing but glibc where they run. What Debian's packages have as
# archives too is linked from those: the imported targets stay as they are and name the archive in
# place of the shared library, so that no other file knows of the difference. lld finds symbols in
# archives whatever their order, which such targets do not promise.

set(CMAKE_SKIP_RPATH ON)
if(NOT LLD)
  message(FATAL_ERROR "TELEGRAD_STATIC needs ld.lld")
endif()
# Some of Debian's packages have no archive (libz3, which LLVM's libraries name): what nothing refers to is not linked.
add_link_options(-static-libstdc++ -static-libgcc -Wl,--gc-sections -Wl,--as-needed)

# Only what the engine compiles for.
llvm_map_components_to_libnames(TELEGRAD_LLVM orcjit passes irreader X86 NVPTX)

get_property(imported DIRECTORY PROPERTY IMPORTED_TARGETS)
foreach(target ${imported})
  get_target_property(type ${target} TYPE)
  if(type STREQUAL SHARED_LIBRARY OR type STREQUAL UNKNOWN_LIBRARY)
    get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
    set(properties IMPORTED_LOCATION)
    foreach(configuration ${configurations})
      list(APPEND properties IMPORTED_LOCATION_${configuration})
    endforeach()
    foreach(property ${properties})
      get_target_property(shared ${target} ${property})
      if(shared MATCHES "\\.so[.0-9]*$")
        string(REGEX REPLACE "\\.so[.0-9]*$" ".a" archive ${shared})
        if(EXISTS ${archive})
          set_target_properties(${target} PROPERTIES ${property} ${archive})
        endif()
      endif()
    endforeach()
  endif()
  # What pkg-config found is a path, or -lNAME, among the target's own libraries.
  get_target_property(libraries ${target} INTERFACE_LINK_LIBRARIES)
  if(libraries AND NOT type STREQUAL EXECUTABLE)
    set(archives)
    foreach(library ${libraries})
      string(REGEX REPLACE "^-l(.*)$" "/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/lib\\1.a" archive "${library}")
      string(REGEX REPLACE "\\.so[.0-9]*$" ".a" archive "${archive}")
      if(IS_ABSOLUTE "${archive}" AND EXISTS "${archive}")
        list(APPEND archives ${archive})
      else()
        list(APPEND archives ${library})
      endif()
    endforeach()
    set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES "${archives}")
  endif()
endforeach()
