# Precompiled headers, for GCC without sanitizers. Parsing the standard library, Abseil, GoogleTest and gRPC
# was more than half of the time of most sources, so each of three sets of such headers is parsed once. A
# source still includes all that it uses: the presets asan, tsan and fuzz compile it without any of this.
#
# GCC takes a precompiled header only for the same code generation and the same macros: so all code is
# position-independent (programs too, whose -fPIE would differ) and compiled with -pthread, and a target's own
# macros are such as no header of the sets asks for. One that does not fit is an error (-Winvalid-pch).

# A precompiled header forgets the pragmas in it (GCC bug 64117), so also those of <bits/char_traits.h> against
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
tg_header_set(common absl::flat_hash_map)
tg_header_set(test GTest::gmock <filesystem> <fstream> <random> <gmock/gmock.h> <gtest/gtest.h>)
if(TELEGRAD_SERVER)
  tg_header_set(rpc gRPC::grpc++ <google/protobuf/message.h> <grpcpp/grpcpp.h>)
endif()

foreach(target ${targets})
  get_target_property(type ${target} TYPE)
  get_target_property(sources ${target} SOURCES)
  get_target_property(libraries ${target} LINK_LIBRARIES)
  if(NOT sources OR type MATCHES "INTERFACE|UTILITY")
    continue()
  endif()
  if(libraries MATCHES "GTest::")
    set(headers test)
  elseif(libraries MATCHES "telegrad_grpc|gRPC::" OR (TELEGRAD_SERVER AND libraries MATCHES "protobuf::"))
    set(headers rpc)
  else()
    set(headers common)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers}_headers)
  target_compile_options(${target} PRIVATE -fPIC)
endforeach()

foreach(source ${without})
  get_filename_component(folder ${source} DIRECTORY)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/${source} DIRECTORY ${PROJECT_SOURCE_DIR}/${folder}
                              PROPERTIES SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
endforeach()
