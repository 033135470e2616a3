# Precompiled headers, except for fuzzing, and for GCC with sanitizers. Parsing the standard library, Abseil, GoogleTest
# and gRPC was more than half of the time of most sources, so each of four sets of such headers is parsed once. A source
# still includes all that it uses: the preset fuzz compiles it without any of this.
#
# GCC takes a precompiled header only for the same code generation and the same macros: so all code is
# position-independent (programs too, whose -fPIE would differ) and compiled with -pthread, and a target's own
# macros are such as no header of the sets asks for. One that does not fit is an error (-Winvalid-pch).

# With GCC a precompiled header forgets the pragmas in it (GCC bug 64117), so also those of <bits/char_traits.h> against
# false -Warray-bounds and -Wstringop-overflow on std::string. Where those came up:
set(without
    devices/cuda/cuda_device.cc engine/frontend/io/zip.cc server/identity/signature.cc
    tests/conformance/run_lowered.cc tests/golden/views_test.cc)

set(common
    <algorithm> <atomic> <chrono> <cmath> <condition_variable> <cstdint> <cstring> <deque> <functional>
    <map> <memory> <mutex> <optional> <set> <span> <string> <string_view> <thread> <utility> <variant>
    <vector> <absl/container/flat_hash_map.h> <absl/hash/hash.h> <absl/status/status.h>
    <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/time/time.h>)

tg_targets(${PROJECT_SOURCE_DIR} targets)

# tg_header_set(NAME LIBRARY HEADERS...): the common headers and those of LIBRARY.
set(empty ${PROJECT_BINARY_DIR}/empty.cc)
if(NOT EXISTS ${empty})
  file(TOUCH ${empty})  # once: a newer one is compiled again
endif()
function(tg_header_set name library)
  add_library(${name}_headers OBJECT ${empty})
  target_link_libraries(${name}_headers PRIVATE ${library})
  target_precompile_headers(${name}_headers PRIVATE ${common} ${ARGN})
endfunction()
set(test <filesystem> <fstream> <random> <gmock/gmock.h> <gtest/gtest.h>)
tg_header_set(common absl::flat_hash_map)
tg_header_set(test GTest::gmock ${test})
if(TELEGRAD_SERVER)
  # What protoc made of the wire contract is parsed by most sources that know gRPC.
  set(rpc <google/protobuf/message.h> <grpcpp/grpcpp.h> <telegrad/v1/compute.grpc.pb.h> <telegrad/v1/data.grpc.pb.h>
          <telegrad/v1/graph.pb.h> <telegrad/v1/session.grpc.pb.h>)
  tg_header_set(rpc telegrad_grpc ${rpc})
  tg_header_set(rpc_test "telegrad_grpc;GTest::gmock" ${test} ${rpc})
endif()

# tg_reaches(TARGET LIBRARY RESULT): whether a target of this tree links LIBRARY, directly or by way of others of it.
function(tg_reaches target library result)
  set(open ${target})
  set(seen)
  set(${result} OFF PARENT_SCOPE)
  while(open)
    list(POP_FRONT open next)
    if(next STREQUAL library)
      set(${result} ON PARENT_SCOPE)
      return()
    endif()
    if(next IN_LIST seen OR NOT TARGET ${next} OR next MATCHES "::")
      continue()
    endif()
    list(APPEND seen ${next})
    get_target_property(type ${next} TYPE)
    set(property LINK_LIBRARIES)
    if(type STREQUAL "INTERFACE_LIBRARY")
      set(property INTERFACE_LINK_LIBRARIES)
    endif()
    get_target_property(libraries ${next} ${property})
    if(libraries)
      list(APPEND open ${libraries})
    endif()
  endwhile()
endfunction()

foreach(target ${targets})
  get_target_property(type ${target} TYPE)
  get_target_property(sources ${target} SOURCES)
  get_target_property(libraries ${target} LINK_LIBRARIES)
  if(NOT sources OR type MATCHES "INTERFACE|UTILITY" OR target MATCHES "^telegrad_(proto|grpc)$")
    continue()  # the last two are what the headers of the wire contract are made with
  endif()
  tg_reaches(${target} telegrad_grpc knows_grpc)
  if(knows_grpc AND libraries MATCHES "GTest::")
    set(headers rpc_test)
  elseif(libraries MATCHES "GTest::")
    set(headers test)
  elseif(knows_grpc)
    set(headers rpc)
  else()
    set(headers common)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers}_headers)
  target_compile_options(${target} PRIVATE -fPIC)
endforeach()

if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(without)
endif()
foreach(source ${without})
  get_filename_component(folder ${source} DIRECTORY)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/${source} DIRECTORY ${PROJECT_SOURCE_DIR}/${folder}
                              PROPERTIES SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
endforeach()
