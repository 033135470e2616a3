# Unity builds: the sources of a target are compiled in groups, one compiler run a group, because parsing
# and instantiating what they share was most of the time. Names in anonymous namespaces are unique within a
# folder for this (tests/tools/unique_names.py). The preset `dev` compiles each source by itself: slower from
# nothing, faster after an edit of a header that few sources include.
#
# CMake's own groups (UNITY_BUILD) name their sources by absolute paths. These name them from the root of the
# tree, so a compiler cache finds what another clone has compiled.
set(most 16)  # sources in a group
tg_targets(${PROJECT_SOURCE_DIR} targets)
# What protoc writes is grouped in proto/CMakeLists.txt. The models of tests have the same names in each file, and
# gpu_test is made of several folders' tests.
list(REMOVE_ITEM targets telegrad_proto telegrad_grpc gpu_test telegrad_models)
foreach(target ${targets})
  get_target_property(type ${target} TYPE)
  get_target_property(sources ${target} SOURCES)
  if(NOT sources OR type MATCHES "INTERFACE|UTILITY")
    continue()
  endif()
  get_target_property(folder ${target} SOURCE_DIR)
  get_target_property(build_folder ${target} BINARY_DIR)
  set(single)
  set(grouped)
  foreach(source ${sources})
    get_filename_component(path ${source} ABSOLUTE BASE_DIR ${folder})
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${path})
    get_source_file_property(skip ${path} DIRECTORY ${folder} SKIP_UNITY_BUILD_INCLUSION)
    if(skip OR NOT name MATCHES "^[a-z].*\\.cc$" OR path MATCHES "^${PROJECT_BINARY_DIR}/")
      list(APPEND single ${source})
    else()
      list(APPEND grouped ${name})
    endif()
  endforeach()
  list(LENGTH grouped count)
  math(EXPR groups "(${count} + ${most} - 1) / ${most}")
  set(number 0)
  while(grouped)
    # As many in each of the groups that are left.
    list(LENGTH grouped count)
    math(EXPR size "(${count} + ${groups} - ${number} - 1) / (${groups} - ${number})")
    list(SUBLIST grouped 0 ${size} group)
    list(REMOVE_ITEM grouped ${group})
    list(TRANSFORM group PREPEND "#include \"")
    list(TRANSFORM group APPEND "\"\n")
    list(JOIN group "" content)
    file(CONFIGURE OUTPUT ${build_folder}/${target}.groups/group_${number}.cc CONTENT "${content}" @ONLY)
    list(APPEND single ${build_folder}/${target}.groups/group_${number}.cc)
    math(EXPR number "${number} + 1")
  endwhile()
  set_target_properties(${target} PROPERTIES SOURCES "${single}")
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC takes every file but the one that it was given for a header, where this would be a mistake.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endforeach()
