# coppice_embed(SOURCE FILES...): writes a C++ source that holds the bytes of files, and writes it again when one of them changes. It
# defines EmbeddedFiles() of coordinator/web/embedded_files.h. This file is both the function and, with -DCOPPICE_EMBED_OUT, the script
# that writes.
if(NOT COPPICE_EMBED_OUT)
  function(coppice_embed source)
    set(files "")
    foreach(file IN LISTS ARGN)
      list(APPEND files ${CMAKE_CURRENT_SOURCE_DIR}/${file})
    endforeach()
    string(REPLACE ";" "|" listed "${files}")
    add_custom_command(OUTPUT ${source} DEPENDS ${files} ${CMAKE_SOURCE_DIR}/cmake/CoppiceEmbed.cmake VERBATIM
      COMMAND ${CMAKE_COMMAND} -DCOPPICE_EMBED_OUT=${source} -DCOPPICE_EMBED_FILES=${listed} -P ${CMAKE_SOURCE_DIR}/cmake/CoppiceEmbed.cmake
      COMMENT "Embedding the files of the web page")
  endfunction()
  return()
endif()

string(REPLACE "|" ";" files "${COPPICE_EMBED_FILES}")
set(arrays "")
set(rows "")
foreach(file IN LISTS files)
  get_filename_component(name ${file} NAME)
  string(MAKE_C_IDENTIFIER "k_${name}" array)
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "(................................................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
  string(APPEND arrays "constexpr char ${array}[] = {\n${bytes}};\n")
  string(APPEND rows "    {\"${name}\", {${array}, sizeof(${array})}},\n")
endforeach()
file(WRITE ${COPPICE_EMBED_OUT} "// Written by cmake/CoppiceEmbed.cmake.
#include \"coordinator/web/embedded_files.h\"

namespace coppice::coordinator {
namespace {
${arrays}
constexpr EmbeddedFile kFiles[] = {
${rows}};
}  // namespace

absl::Span<const EmbeddedFile> EmbeddedFiles() { return kFiles; }

}  // namespace coppice::coordinator
")
