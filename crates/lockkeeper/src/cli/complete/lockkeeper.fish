# Completions of lockkeeper for fish: `lockkeeper complete` knows what can come next.
function __lockkeeper_complete
    set -l words (commandline -xpc 2>/dev/null; or commandline -opc)
    set -l current (commandline -ct)
    for line in ($words[1] complete -- $words[2..] "$current" 2>/dev/null)
        switch $line
            case ''
            case ':files'
                __fish_complete_path "$current"
            case ':folders'
                __fish_complete_directories "$current"
            case ':command *'
                # The command behind `--` has completions of its own.
                set -l first (math (string replace ':command ' '' -- $line) + 1)
                set -l command (string escape -- $words[$first..])
                complete -C "$command $current"
            case '*'
                echo $line
        end
    end
end
complete -c lockkeeper -f -a '(__lockkeeper_complete)'
