# Completion of the command coppice for bash. installed_files.py puts two tables before this: _coppice_words, the commands and
# options after each command, and _coppice_values, what the value of an option may be: words, FILE, DIR or ANY.
# shellcheck shell=bash disable=SC2154

_coppice_paths() {
  compopt -o filenames 2>/dev/null || true  # outside of a completion
  mapfile -t COMPREPLY < <(compgen "$1" -- "${COMP_WORDS[COMP_CWORD]}")
}

_coppice() {
  local current=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} value='' words=''
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="${!_coppice_words[*]} help --help --version"
  elif [ "$command" = help ]; then
    [ "$COMP_CWORD" -gt 2 ] || words=${!_coppice_words[*]}
  elif [ -n "$command" ]; then
    value=${_coppice_values["$command ${COMP_WORDS[COMP_CWORD - 1]}"]:-}
    words=${value:-${_coppice_words[$command]:-}}
  fi
  case $value in
    FILE) _coppice_paths -f ;;
    DIR) _coppice_paths -d ;;
    ANY) ;;
    *)
      mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
      if [ -z "$value" ] && [ ${#COMPREPLY[@]} -eq 0 ] && [ "$COMP_CWORD" -gt 1 ] && [[ $current == [!-]* ]]; then
        _coppice_paths -f
      fi ;;
  esac
}
complete -F _coppice coppice
