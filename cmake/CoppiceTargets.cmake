# coppice_library(NAME SOURCES ... DEPS ...), coppice_program(...), coppice_test(...): one library per
# folder, sources listed, warnings as errors.
set(COPPICE_WARNINGS -Wall -Wextra -Werror -Wno-sign-compare -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  list(APPEND COPPICE_WARNINGS -Wno-dangling-reference)  # takes an element of an absl::Span for a part of it
endif()
set(COPPICE_FLAGS ${COPPICE_WARNINGS} -ffp-contract=off -fno-math-errno)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # collects garbage late: a twentieth to an eighth less time
  list(APPEND COPPICE_FLAGS "SHELL:--param ggc-min-expand=1000" "SHELL:--param ggc-min-heapsize=1000000")
endif()
option(COPPICE_ASAN "address and undefined-behaviour sanitizers" OFF)
option(COPPICE_TSAN "thread sanitizer" OFF)
set(COPPICE_SLOWDOWN 1)  # by how much tests may take longer than their limits say
if(COPPICE_ASAN OR COPPICE_TSAN)
  set(COPPICE_SLOWDOWN 5)
  add_compile_options(-Wno-maybe-uninitialized)  # sanitizers hide from g++ 12 what initializes Boost's optional
endif()
if(COPPICE_ASAN)
  add_compile_options(-fsanitize=address,undefined -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=address,undefined)
elseif(COPPICE_TSAN)
  add_compile_options(-fsanitize=thread -g1)
  add_link_options(-fsanitize=thread)
endif()

# Every definition of one program is seen at its link: types of one qualified name that differ are an error.
option(COPPICE_LTO_ODR "link-time optimization that compares the types of every file" OFF)
if(COPPICE_LTO_ODR)
  set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)
  add_compile_options(-Wno-maybe-uninitialized)  # with -Og g++ 12 does not see what initializes an optional
  add_link_options(-Wodr -Werror=odr -Werror=lto-type-mismatch)
endif()

# Code is of one of five kinds: `library`; `node` (the programs of the nodes and the conversions: messages and the log);
# `service` (the coordinator: JSON besides); `tool` and `test`. The last three are compiled with less optimization, a third
# faster: what is hot in them is in the libraries. Each kind has headers that most of its files include, parsed once; a
# header that few files of a kind include stays out, for its inline functions cost every file (JSON 0.7 s). With
# COPPICE_PRECOMPILE=OFF every file must still compile: each includes what it uses.
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
# Their definitions are part of the headers.
set(COPPICE_HEADERS_DEPS_node coppice_messages spdlog::spdlog)
set(COPPICE_HEADERS_DEPS_service coppice_messages spdlog::spdlog)
set(COPPICE_HEADERS_DEPS_test GTest::gmock)

# What a service, a tool or a test makes of templates (JSON, Boost, GoogleTest) it makes in most of its files: six of them are
# compiled as one, a fifth less time for the whole build. Libraries and nodes stay one file at a time: names of one file are never
# seen by another there. To see the errors of each file alone, or when one file is compiled again and again: OFF.
option(COPPICE_UNITY "compile services, tools and tests six files at a time" ON)
set(COPPICE_UNITY_KINDS service tool test CACHE STRING "kinds of code that are compiled so")

# Flags and precompiled headers of a target of this kind; -fpch-preprocess is for ccache.
function(coppice_compile target kind)
  target_compile_options(${target} PRIVATE ${COPPICE_FLAGS} ${COPPICE_FLAGS_${kind}})
  if(COPPICE_UNITY AND kind IN_LIST COPPICE_UNITY_KINDS)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
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

function(coppice_library name)
  cmake_parse_arguments(ARG "" "KIND" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_KIND)
    set(ARG_KIND library)
  endif()
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS})
  coppice_compile(${name} ${ARG_KIND})
endfunction()

function(coppice_program name)
  cmake_parse_arguments(ARG "" "KIND" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_KIND)
    set(ARG_KIND library)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIC)  # as the libraries: the precompiled headers are the same
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  coppice_compile(${name} ${ARG_KIND})
endfunction()

# A time limit in seconds for tests of other kinds; longer under sanitizers.
function(coppice_set_timeout timeout)
  math(EXPR timeout "${timeout} * ${COPPICE_SLOWDOWN}")
  set_tests_properties(${ARGN} PROPERTIES TIMEOUT ${timeout})
endfunction()

# A GoogleTest binary, run as one ctest entry. TIMEOUT in seconds (default 300), LABELS optional. LONG: a second entry,
# name_long with the label `long`, takes ten times the samples (tests/testing/long_run.h); the test presets leave it out.
function(coppice_test name)
  cmake_parse_arguments(ARG "LONG" "TIMEOUT;LABELS" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * ${COPPICE_SLOWDOWN}")
  coppice_program(${name} KIND test SOURCES ${ARG_SOURCES} DEPS ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
  if(ARG_LONG)
    add_test(NAME ${name}_long COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${name}_long PROPERTIES TIMEOUT 3600 LABELS long ENVIRONMENT COPPICE_LONG=1)
  endif()
endfunction()
