# coppice_library(NAME SOURCES ... DEPS ...), coppice_program(...), coppice_test(...). There is one
# library per folder, sources are listed by name, and warnings are errors.
set(COPPICE_WARNINGS -Wall -Wextra -Werror -Wno-sign-compare -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  list(APPEND COPPICE_WARNINGS -Wno-dangling-reference)  # false alarms: it assumes that an absl::Span owns its elements
endif()
set(COPPICE_FLAGS ${COPPICE_WARNINGS} -ffp-contract=off -fno-math-errno)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # g++ collects garbage less often: saves 5 to 12 % of the time
  list(APPEND COPPICE_FLAGS "SHELL:--param ggc-min-expand=1000" "SHELL:--param ggc-min-heapsize=1000000")
endif()
option(COPPICE_ASAN "address and undefined-behaviour sanitizers" OFF)
option(COPPICE_TSAN "thread sanitizer" OFF)
set(COPPICE_SLOWDOWN 1)  # how much slower sanitizers make the programs under test
if(COPPICE_ASAN OR COPPICE_TSAN)
  set(COPPICE_SLOWDOWN 5)
  add_compile_options(-Wno-maybe-uninitialized)  # false alarms of g++ 12 about Boost's optional under sanitizers
endif()
if(COPPICE_ASAN)
  add_compile_options(-fsanitize=address,undefined -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=address,undefined)
elseif(COPPICE_TSAN)
  add_compile_options(-fsanitize=thread -g1)
  add_link_options(-fsanitize=thread)
endif()

# The linker sees all definitions of a program. Two different types with one qualified name are an error.
option(COPPICE_LTO_ODR "link-time optimization that compares the types of every file" OFF)
if(COPPICE_LTO_ODR)
  set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)
  add_compile_options(-Wno-maybe-uninitialized)  # false alarms of g++ 12 about std::optional with -Og
  add_link_options(-Wodr -Werror=odr -Werror=lto-type-mismatch)
endif()

# There are five kinds of code. `library`. `node`: the programs of the nodes and the conversions, which use messages and the log.
# `service`: the coordinator, which also uses JSON. `tool`. `test`. The last three are compiled with less optimization, which takes
# a third less time; their hot code is in the libraries. Each kind has a precompiled header of what most of its files include.
# Headers that only a few files include are left out, because their inline functions cost time in every file (JSON: 0.7 s).
# Each file still includes what it uses, so everything compiles with COPPICE_PRECOMPILE=OFF.
option(COPPICE_PRECOMPILE "precompiled headers" ON)
set(COPPICE_FLAGS_library "")
set(COPPICE_FLAGS_node "")
set(COPPICE_FLAGS_service -O1 -Wno-maybe-uninitialized)
set(COPPICE_FLAGS_tool -O1 -Wno-maybe-uninitialized)
set(COPPICE_FLAGS_test -Og -Wno-maybe-uninitialized)
if(COPPICE_TSAN)  # Abseil and Asio have fences in their headers, which g++ cannot instrument
  foreach(kind service tool test)
    list(APPEND COPPICE_FLAGS_${kind} -Wno-tsan)
  endforeach()
endif()
# What the precompiled headers need in order to compile.
set(COPPICE_HEADERS_DEPS_node coppice_messages spdlog::spdlog)
set(COPPICE_HEADERS_DEPS_service coppice_messages spdlog::spdlog)
set(COPPICE_HEADERS_DEPS_test GTest::gmock)

# Files of a library read the same headers and instantiate the same templates. So up to eight of them are compiled as one, which
# takes half the time. Turn this OFF to see the errors of each file by itself, or while you compile one file again and again. The
# preset lto-odr has it OFF, so its build notices a file that uses what only its neighbour includes.
option(COPPICE_UNITY "compile the files of a library or program eight at a time" ON)

# Sets the flags and precompiled headers of a target of this kind. ccache needs -fpch-preprocess.
function(coppice_compile target kind)
  target_compile_options(${target} PRIVATE ${COPPICE_FLAGS} ${COPPICE_FLAGS_${kind}})
  if(COPPICE_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
  if(NOT COPPICE_PRECOMPILE)
    return()
  endif()
  set(precompiled coppice_${kind}_headers)
  if(NOT TARGET ${precompiled})
    file(WRITE ${CMAKE_BINARY_DIR}/${precompiled}.cc.in "")
    configure_file(${CMAKE_BINARY_DIR}/${precompiled}.cc.in ${CMAKE_BINARY_DIR}/${precompiled}.cc COPYONLY)
    add_library(${precompiled} OBJECT ${CMAKE_BINARY_DIR}/${precompiled}.cc)
    target_include_directories(${precompiled} PRIVATE ${CMAKE_SOURCE_DIR})
    target_compile_options(${precompiled} PRIVATE ${COPPICE_FLAGS} ${COPPICE_FLAGS_${kind}} -fpch-preprocess)
    target_precompile_headers(${precompiled} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/${kind}_headers.h)
    target_link_libraries(${precompiled} PRIVATE ${COPPICE_HEADERS_DEPS_${kind}})
  endif()
  target_compile_options(${target} PRIVATE -fpch-preprocess)
  target_precompile_headers(${target} REUSE_FROM ${precompiled})
endfunction()

# ALONE: sources that are never compiled together with others: those that Highway compiles once for each instruction set, and those
# whose macros or local names are also those of a neighbour.
function(coppice_library name)
  cmake_parse_arguments(ARG "" "KIND" "SOURCES;ALONE;DEPS" ${ARGN})
  if(NOT ARG_KIND)
    set(ARG_KIND library)
  endif()
  add_library(${name} STATIC ${ARG_SOURCES} ${ARG_ALONE})
  set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS})
  coppice_compile(${name} ${ARG_KIND})
endfunction()

function(coppice_program name)
  cmake_parse_arguments(ARG "" "KIND" "SOURCES;ALONE;DEPS" ${ARGN})
  if(NOT ARG_KIND)
    set(ARG_KIND library)
  endif()
  add_executable(${name} ${ARG_SOURCES} ${ARG_ALONE})
  set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIC)  # as for the libraries, so that both can use the same precompiled headers
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  coppice_compile(${name} ${ARG_KIND})
endfunction()

# Sets the time limit of tests that coppice_test did not make, in seconds of a machine with a free core for each thread. ctest's own
# limit, in seconds of the clock, is for what hangs: a busy machine takes up to ten times as long (tests/cluster/stopwatch.py).
function(coppice_set_timeout timeout)
  math(EXPR timeout "${timeout} * 10 * ${COPPICE_SLOWDOWN}")
  set_tests_properties(${ARGN} PROPERTIES TIMEOUT ${timeout})
endfunction()

# A GoogleTest binary, run as one ctest entry. TIMEOUT as of coppice_set_timeout (default 300), LABELS optional. With LONG there is a second
# entry, name_long with the label `long`. It takes ten times the samples (tests/testing/long_run.h). The test presets leave it out.
function(coppice_test name)
  cmake_parse_arguments(ARG "LONG" "TIMEOUT;LABELS" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  coppice_program(${name} KIND test SOURCES ${ARG_SOURCES} DEPS ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  coppice_set_timeout(${ARG_TIMEOUT} ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}")
  if(ARG_LONG)
    add_test(NAME ${name}_long COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    coppice_set_timeout(3600 ${name}_long)
    set_tests_properties(${name}_long PROPERTIES LABELS long ENVIRONMENT COPPICE_LONG=1)
  endif()
endfunction()
