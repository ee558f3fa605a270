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

function(coppice_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${COPPICE_FLAGS})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS})
endfunction()

function(coppice_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${COPPICE_FLAGS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
endfunction()

# A GoogleTest binary, run as one ctest entry. TIMEOUT in seconds (default 300), LABELS optional.
function(coppice_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;LABELS" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  coppice_program(${name} SOURCES ${ARG_SOURCES} DEPS ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  target_compile_options(${name} PRIVATE -O1)  # a third less to compile; the libraries keep their optimization
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
