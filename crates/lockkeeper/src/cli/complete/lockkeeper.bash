# Completions of lockkeeper for bash: `lockkeeper complete` knows what can come next.
_lockkeeper() {
    local program=${COMP_WORDS[0]} rest=${COMP_LINE:0:COMP_POINT} words=() word place
    # bash also splits words at `:` and `=`. What no blank separates is one word.
    for ((place = 0; place <= COMP_CWORD; place++)); do
        word=${COMP_WORDS[place]}
        ((place < COMP_CWORD)) || word=${rest#"${rest%%[![:space:]]*}"}
        if ((place > 0)) && [[ -n $rest && $rest != [[:space:]]* ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
        rest=${rest#*"$word"}
    done
    local current=${words[${#words[@]} - 1]} offered line first=0
    offered=$("$program" complete -- "${words[@]:1}" 2>/dev/null) || return 0
    # What is before the last `:` or `=` stays on the line.
    local kept=${current%"${current##*[:=]}"}
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            '') ;;
            ':files') compopt -o filenames 2>/dev/null; mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "${current#"$kept"}") ;;
            ':folders') compopt -o filenames 2>/dev/null; mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "${current#"$kept"}") ;;
            ':command '*) first=${line#:command } ;;
            *) line=${line%%$'\t'*}; COMPREPLY+=("${line#"$kept"}") ;;
        esac
    done <<<"$offered"
    ((first > 0)) || return 0
    # The command behind `--`: its name, then its own completions if bash-completion is there, else files.
    if ((${#words[@]} - 1 == first)); then
        mapfile -t COMPREPLY < <(compgen -c -- "$current" | sort -u)
    elif declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$first"
    elif declare -F _command_offset >/dev/null; then
        _command_offset "$first"
    else
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
}
complete -F _lockkeeper lockkeeper
