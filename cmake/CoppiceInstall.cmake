# cmake --install and the Debian package (deploy/package.sh). The programs are in bin, the launchers below lib/coppice in the folders
# that they have in the tree, so that both find each other in the same way (deploy/launch/installation.py). Needs the five programs
# alone: cmake --build build/release --target coppice-coordinator coppice-worker coppice-draft coppice-loadgen coppice-catalogue.
set(COPPICE_PROGRAMS coppice-coordinator coppice-worker coppice-draft coppice-loadgen coppice-catalogue)
foreach(program IN LISTS COPPICE_PROGRAMS)
  if(NOT TARGET ${program})
    return()  # a build of some folders alone
  endif()
endforeach()
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(CMAKE_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

foreach(program IN LISTS COPPICE_PROGRAMS)
  target_link_options(${program} PRIVATE LINKER:-z,relro,-z,now)  # the tables of the linker cannot be written while the program runs
endforeach()
install(TARGETS ${COPPICE_PROGRAMS} RUNTIME DESTINATION bin)
install(PROGRAMS deploy/coppice deploy/ask.py deploy/chat.py deploy/cluster.sh deploy/cluster_key.sh deploy/cluster_state.py deploy/demo.sh
  deploy/models.sh deploy/with_address.sh DESTINATION lib/coppice/deploy)
install(FILES deploy/api_connection.py deploy/environment.sh DESTINATION lib/coppice/deploy)
install(PROGRAMS deploy/launch/cluster.py deploy/launch/draft_choice.py deploy/launch/host.py DESTINATION lib/coppice/deploy/launch)
foreach(name agent cluster_file description draft_files installation options placement processes running)
  install(FILES deploy/launch/${name}.py DESTINATION lib/coppice/deploy/launch)
endforeach()
install(PROGRAMS deploy/models/gguf_to_folder.py DESTINATION lib/coppice/deploy/models)
foreach(name catalogue.toml gguf_blocks.py gguf_file.py gguf_tokenizer.py models.py partial_folder.py)
  install(FILES deploy/models/${name} DESTINATION lib/coppice/deploy/models)
endforeach()
install(PROGRAMS deploy/tool/commands.py deploy/tool/check.py deploy/tool/bench.py DESTINATION lib/coppice/deploy/tool)
install(FILES deploy/tool/prompts.jsonl DESTINATION lib/coppice/deploy/tool)
install(PROGRAMS deploy/slurm/cluster.sh deploy/slurm/keep_key.sh DESTINATION lib/coppice/deploy/slurm)
install(PROGRAMS deploy/systemd/ranks.sh DESTINATION lib/coppice/deploy/systemd)
# What models.sh makes the folders of drafts with.
install(PROGRAMS training/draft_folder.py DESTINATION lib/coppice/training)
install(FILES training/llama_folder.py training/tool_arguments.py DESTINATION lib/coppice/training)
foreach(name __init__ llama pieces tensors)
  install(FILES training/draft_distillation/${name}.py DESTINATION lib/coppice/training/draft_distillation)
endforeach()

install(DIRECTORY deploy/demo DESTINATION share/coppice)
install(DIRECTORY deploy/models/smollm2-draft DESTINATION share/coppice/models)
install(FILES README.md LICENSE NOTICE SECURITY.md DESTINATION share/doc/coppice)
install(DIRECTORY docs DESTINATION share/doc/coppice)
install(FILES deploy/examples/placed.toml deploy/examples/two_hosts.toml deploy/grafana.json DESTINATION share/doc/coppice/examples)
install(PROGRAMS deploy/kubernetes/manifests.py DESTINATION share/doc/coppice/examples)
install(FILES deploy/systemd/coppice.conf DESTINATION lib/sysusers.d)

# The files that are made of others. What is written is also told to the manifest of the installation.
set(COPPICE_MAKE_FILES ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/deploy/package/installed_files.py)
install(CODE "
  execute_process(
    COMMAND ${COPPICE_MAKE_FILES} --programs ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} --version ${PROJECT_VERSION}
      --prefix \"\${CMAKE_INSTALL_PREFIX}\" --destination \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\"
    OUTPUT_VARIABLE made COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL \"[^\\n]+\" made \"\${made}\")
  list(APPEND CMAKE_INSTALL_MANIFEST_FILES \${made})")

# What only the Debian package has.
set(COPPICE_MAINTAINER "Coppice maintainers <maintainers@coppice.example>" CACHE STRING "who answers for the package")
set(COPPICE_REVISION 1 CACHE STRING "which package of this version it is")
install(FILES deploy/package/copyright DESTINATION share/doc/coppice COMPONENT debian EXCLUDE_FROM_ALL)
install(FILES deploy/package/lintian-overrides DESTINATION share/lintian/overrides RENAME coppice COMPONENT debian EXCLUDE_FROM_ALL)
install(CODE "
  execute_process(
    COMMAND ${COPPICE_MAKE_FILES} --debian ${PROJECT_VERSION}-${COPPICE_REVISION} --maintainer \"${COPPICE_MAINTAINER}\"
      --destination \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)"
  COMPONENT debian EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME coppice)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "${COPPICE_MAINTAINER}")
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};coppice;ALL;/" "${CMAKE_BINARY_DIR};coppice;debian;/")
set(CPACK_SET_DESTDIR ON)  # the units and the pages name the prefix
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS ${CMAKE_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS})
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${COPPICE_REVISION})
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "openmpi-bin, python3 (>= 3.11)")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3-numpy, python3-pip")  # for `coppice models`
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "curl, openssh-client")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "serves language models with speculative beam decoding
Coppice serves large language models from a cluster. A small draft model
guesses ahead, and the target model checks all guesses in one forward pass.
Answers are distributed exactly as if the target had decoded alone. A request
can ask for several distinct answers, best first.

The package has the coordinator with an HTTP API like OpenAI's, the worker,
the draft node, a load generator, the command coppice that starts and measures
clusters, units for systemd, and the models of a demo. The programs compute
on CPUs.")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/deploy/package/postinst ${CMAKE_SOURCE_DIR}/deploy/package/prerm
    ${CMAKE_SOURCE_DIR}/deploy/package/postrm)
include(CPack)
