# coppice_library(NAME SOURCES ... DEPS ...), coppice_program(...), coppice_test(...): one library per
# folder, sources listed, warnings as errors.
set(COPPICE_WARNINGS -Wall -Wextra -Werror -Wno-sign-compare -Wno-missing-field-initializers)
set(COPPICE_FLAGS ${COPPICE_WARNINGS} -ffp-contract=off -fno-math-errno)
option(COPPICE_ASAN "address and undefined-behaviour sanitizers" OFF)
option(COPPICE_TSAN "thread sanitizer" OFF)
if(COPPICE_ASAN OR COPPICE_TSAN)
  add_compile_options(-Wno-maybe-uninitialized)  # sanitizers hide from g++ 12 what initializes Boost's optional
endif()
if(COPPICE_ASAN)
  add_compile_options(-fsanitize=address,undefined -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=address,undefined)
elseif(COPPICE_TSAN)
  add_compile_options(-fsanitize=thread -g1)
  add_link_options(-fsanitize=thread)
endif()

# Headers that most files include, parsed once: one set for libraries and programs, one for tests, whose flags differ.
# Off, every file must still compile: each includes what it uses.
option(COPPICE_PRECOMPILE "precompiled headers" ON)
set(COPPICE_TEST_FLAGS -O1)  # a third less to compile; the libraries keep their optimization
set(CMAKE_PCH_WARN_INVALID OFF)

function(coppice_precompiled name header)
  file(WRITE ${CMAKE_BINARY_DIR}/${name}.cc.in "")
  configure_file(${CMAKE_BINARY_DIR}/${name}.cc.in ${CMAKE_BINARY_DIR}/${name}.cc COPYONLY)
  add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/${name}.cc)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${COPPICE_FLAGS} ${ARGN} -fpch-preprocess)  # the last for ccache
  target_precompile_headers(${name} PRIVATE ${header})
endfunction()

function(coppice_use_precompiled target precompiled)
  if(COPPICE_PRECOMPILE)
    if(NOT TARGET ${precompiled})
      if(precompiled STREQUAL coppice_test_headers)
        coppice_precompiled(${precompiled} ${CMAKE_SOURCE_DIR}/cmake/test_headers.h ${COPPICE_TEST_FLAGS})
      else()
        coppice_precompiled(${precompiled} ${CMAKE_SOURCE_DIR}/cmake/library_headers.h)
      endif()
    endif()
    target_compile_options(${target} PRIVATE -fpch-preprocess)
    target_precompile_headers(${target} REUSE_FROM ${precompiled})
  endif()
endfunction()

function(coppice_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${COPPICE_FLAGS})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS})
  coppice_use_precompiled(${name} coppice_library_headers)
endfunction()

function(coppice_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${name} PRIVATE -fPIC)  # as the libraries: the precompiled headers are the same
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${COPPICE_FLAGS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
endfunction()

function(coppice_program name)
  coppice_executable(${name} ${ARGN})
  coppice_use_precompiled(${name} coppice_library_headers)
endfunction()

# A GoogleTest binary, run as one ctest entry. TIMEOUT in seconds (default 300), LABELS optional. LONG: a second entry,
# name_long with the label `long`, takes ten times the samples (tests/testing/long_run.h); the test presets leave it out.
function(coppice_test name)
  cmake_parse_arguments(ARG "LONG" "TIMEOUT;LABELS" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  coppice_executable(${name} SOURCES ${ARG_SOURCES} DEPS ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  target_compile_options(${name} PRIVATE ${COPPICE_TEST_FLAGS})
  coppice_use_precompiled(${name} coppice_test_headers)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
  if(ARG_LONG)
    add_test(NAME ${name}_long COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${name}_long PROPERTIES TIMEOUT 3600 LABELS long ENVIRONMENT COPPICE_LONG=1)
  endif()
endfunction()
