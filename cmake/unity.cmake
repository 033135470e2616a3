# Unity builds: the sources of a target are compiled in groups, one compiler run a group, because parsing
# and instantiating what they share was most of the time. Names in anonymous namespaces are unique within a
# folder for this (tests/tools/unique_names.py). The preset `dev` compiles each source by itself: slower from
# nothing, faster after an edit of a header that few sources include.
tg_targets(${PROJECT_SOURCE_DIR} targets)
# What protoc writes has the same names in each file; so have the tables of the fake GPU's instructions and the
# models of tests. gpu_test is made of several folders' tests.
list(REMOVE_ITEM targets telegrad_proto fake_ptx fake_ptx_test gpu_test telegrad_models)
foreach(target ${targets})
  get_target_property(type ${target} TYPE)
  if(NOT type MATCHES "INTERFACE|UTILITY")
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # GCC takes every file but the one that it was given for a header, where this would be a mistake.
      target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
    endif()
  endif()
endforeach()
