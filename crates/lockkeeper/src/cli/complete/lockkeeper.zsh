#compdef lockkeeper
# Completions of lockkeeper for zsh: `lockkeeper complete` knows what can come next.
_lockkeeper() {
    local line first=0 files=0 folders=0
    local -a offered values shown
    offered=("${(@f)$("${(Q)words[1]}" complete -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    for line in "${offered[@]}"; do
        case $line in
            '') ;;
            ':files') files=1 ;;
            ':folders') folders=1 ;;
            ':command '*) first=${line#:command } ;;
            *)
                values+=("${line%%$'\t'*}")
                if [[ -n ${line#*$'\t'} ]]; then
                    shown+=("${line%%$'\t'*}  -- ${line#*$'\t'}")
                else
                    shown+=("${line%%$'\t'*}")
                fi
                ;;
        esac
    done
    if ((first > 0)); then
        # The command behind `--` has completions of its own.
        words=("${(@)words[first + 1,-1]}")
        ((CURRENT -= first))
        _normal
        return
    fi
    ((${#values} == 0)) || compadd -l -d shown -a values
    ((files == 0)) || _files
    ((folders == 0)) || _files -/
}
if [[ $funcstack[1] == _lockkeeper ]]; then
    _lockkeeper "$@"
else
    compdef _lockkeeper lockkeeper
fi
