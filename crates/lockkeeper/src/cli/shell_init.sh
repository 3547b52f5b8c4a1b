# shellcheck shell=sh
# Group locks for shell scripts, by Lockkeeper. Use: eval "$(lockkeeper shell-init)"
# Or keep it as mutex_lock.sh: source it for the functions, or run it as `mutex_lock.sh status` and so on.
#
#   acquire_lock GROUP [SECONDS]      wait for the lock; exit 0: acquired, 75: timeout
#   try_lock GROUP                    the same without waiting
#   release_lock GROUP [FD]           release the lock: close its descriptor
#   execute_with_lock GROUP CMD...    hold the lock while a command or function runs; returns its exit code
#   init_lock_system                  create the lock folder and its registry; every acquire does so, too
#   check_deadlock, cleanup_orphan_locks, force_release_all, start_deadlock_monitor, stop_deadlock_monitor
#
# The lock belongs to a descriptor of the shell (from 200 up in bash, from 9 down in shells that allow only one digit). The
# kernel frees it when the shell and its child processes have ended. After an acquire, LOCK_FD has the number.

_lockkeeper_program=@PROGRAM@
[ -x "$_lockkeeper_program" ] || _lockkeeper_program=lockkeeper

_lockkeeper_name=

_lockkeeper_group() {
    "$_lockkeeper_program" group "$@"
}

# Finds out the pid. A subshell inherits the variables of its parent, but must not release the locks of its parent.
_lockkeeper_here() {
    _lockkeeper_pid=$$
    if [ -r /proc/self/stat ]; then
        read -r _lockkeeper_pid _ </proc/self/stat || _lockkeeper_pid=$$
    fi
    if [ "${_lockkeeper_owner:-}" != "$_lockkeeper_pid" ]; then
        _lockkeeper_owner=$_lockkeeper_pid
        _lockkeeper_fds=
        _lockkeeper_trapped=
    fi
}

# Finds the descriptor that holds a group.
_lockkeeper_find() {
    _lockkeeper_left=$_lockkeeper_fds
    while [ -n "$_lockkeeper_left" ]; do
        _lockkeeper_fd=${_lockkeeper_left%% *}
        _lockkeeper_left=${_lockkeeper_left#* }
        eval "_lockkeeper_name=\${_lockkeeper_group_$_lockkeeper_fd:-}"
        [ "$_lockkeeper_name" != "$1" ] || return 0
    done
    return 1
}

_lockkeeper_forget() {
    _lockkeeper_left=$_lockkeeper_fds
    _lockkeeper_fds=
    while [ -n "$_lockkeeper_left" ]; do
        _lockkeeper_one=${_lockkeeper_left%% *}
        _lockkeeper_left=${_lockkeeper_left#* }
        [ "$_lockkeeper_one" = "$1" ] || _lockkeeper_fds="$_lockkeeper_fds$_lockkeeper_one "
    done
    unset "_lockkeeper_group_$1"
}

_lockkeeper_is_open() {
    { true >&"$1"; } 2>/dev/null
}

# Opens the lock file under a free number.
_lockkeeper_open() {
    _lockkeeper_how='<>'
    [ -w "$1" ] || _lockkeeper_how='<'
    if [ -n "${ZSH_VERSION:-}" ]; then
        # zsh makes this variable an integer for ever, so it is used for nothing else.
        eval "exec {_lockkeeper_number}$_lockkeeper_how\"\$1\"" || return 1
        eval '_lockkeeper_fd=$_lockkeeper_number'
        return 0
    fi
    if [ -n "${BASH_VERSION:-}" ]; then
        _lockkeeper_fd=200
        while _lockkeeper_is_open "$_lockkeeper_fd"; do
            _lockkeeper_fd=$((_lockkeeper_fd + 1))
        done
    else
        _lockkeeper_fd=9
        while [ "$_lockkeeper_fd" -gt 2 ] && _lockkeeper_is_open "$_lockkeeper_fd"; do
            _lockkeeper_fd=$((_lockkeeper_fd - 1))
        done
        if [ "$_lockkeeper_fd" -le 2 ]; then
            echo "lockkeeper: no descriptor from 3 to 9 is free for a lock" >&2
            return 1
        fi
    fi
    eval "exec $_lockkeeper_fd$_lockkeeper_how\"\$1\""
}

_lockkeeper_close() {
    if [ -n "${ZSH_VERSION:-}" ]; then
        eval '_lockkeeper_number=$1; exec {_lockkeeper_number}>&-'
    else
        eval "exec $1>&-"
    fi
}

# _lockkeeper_take GROUP acquire|try [OPTION...]
_lockkeeper_take() {
    _lockkeeper_here
    if _lockkeeper_find "$1"; then
        echo "lockkeeper: this shell holds group $1 already, as descriptor $_lockkeeper_fd" >&2
        return 75
    fi
    _lockkeeper_path=$(_lockkeeper_group path -- "$1") || return $?
    _lockkeeper_open "$_lockkeeper_path" || return 1
    LOCK_FD=$_lockkeeper_fd
    _lockkeeper_wanted=$1
    shift
    _lockkeeper_code=0
    _lockkeeper_group "$@" --fd "$LOCK_FD" -- "$_lockkeeper_wanted" || _lockkeeper_code=$?
    if [ "$_lockkeeper_code" -ne 0 ]; then
        _lockkeeper_close "$LOCK_FD"
        unset LOCK_FD
        return "$_lockkeeper_code"
    fi
    eval "_lockkeeper_group_$LOCK_FD=\$_lockkeeper_wanted"
    _lockkeeper_fds="$_lockkeeper_fds$LOCK_FD "
    _lockkeeper_trap
}

acquire_lock() {
    _lockkeeper_take "$1" acquire --timeout "${2:-${LOCK_TIMEOUT:-300}}"
}

try_lock() {
    _lockkeeper_take "$1" try
}

release_lock() {
    _lockkeeper_here
    _lockkeeper_fd=${2:-}
    if [ -z "$_lockkeeper_fd" ] && ! _lockkeeper_find "$1"; then
        echo "lockkeeper: this shell does not hold group $1" >&2
        return 1
    fi
    _lockkeeper_released=$_lockkeeper_fd
    _lockkeeper_code=0
    # Closing releases, unlocking would be too much: in a trap, the command that the lock protects may still run.
    _lockkeeper_group release --on-close --fd "$_lockkeeper_released" -- "$1" || _lockkeeper_code=$?
    eval "_lockkeeper_name=\${_lockkeeper_group_$_lockkeeper_released:-}"
    if [ "$_lockkeeper_name" = "$1" ]; then
        _lockkeeper_forget "$_lockkeeper_released"
        _lockkeeper_close "$_lockkeeper_released"
    elif [ "$_lockkeeper_code" -eq 0 ]; then
        _lockkeeper_close "$_lockkeeper_released"
    fi
    return "$_lockkeeper_code"
}

_lockkeeper_rest() {
    shift
    "$@"
}

execute_with_lock() {
    acquire_lock "$1" || return $?
    _lockkeeper_rest "$@" && _lockkeeper_result=0 || _lockkeeper_result=$?
    set -- "$1" "$_lockkeeper_result"
    release_lock "$1" || return $?
    return "$2"
}

init_lock_system() {
    _lockkeeper_group init
}

check_deadlock() {
    _lockkeeper_group check-deadlock "$@"
}

cleanup_orphan_locks() {
    _lockkeeper_group cleanup "$@"
}

force_release_all() {
    _lockkeeper_group force-release-all --yes "$@"
}

# The monitor outlives the shell, so it must not inherit the locks.
start_deadlock_monitor() {
    (
        _lockkeeper_left=${_lockkeeper_fds:-}
        while [ -n "$_lockkeeper_left" ]; do
            _lockkeeper_close "${_lockkeeper_left%% *}"
            _lockkeeper_left=${_lockkeeper_left#* }
        done
        _lockkeeper_group monitor start "$@"
    )
}

stop_deadlock_monitor() {
    _lockkeeper_group monitor stop "$@"
}

# Releases all locks that this process still holds; keeps $?.
_lockkeeper_at_exit() {
    _lockkeeper_last=$?
    _lockkeeper_before=${_lockkeeper_owner:-}
    _lockkeeper_here
    if [ "$_lockkeeper_before" = "$_lockkeeper_owner" ]; then
        while [ -n "$_lockkeeper_fds" ]; do
            _lockkeeper_fd=${_lockkeeper_fds%% *}
            eval "_lockkeeper_name=\${_lockkeeper_group_$_lockkeeper_fd:-}"
            release_lock "$_lockkeeper_name" "$_lockkeeper_fd" || :
        done
    fi
    return "$_lockkeeper_last"
}

_lockkeeper_on_signal() {
    _lockkeeper_at_exit || :
    trap - "$1" EXIT
    kill -s "$1" "$_lockkeeper_owner"
}

_lockkeeper_note() {
    case $2 in
    EXIT) _lockkeeper_exit=$1 ;;
    INT) _lockkeeper_int=$1 ;;
    TERM) _lockkeeper_term=$1 ;;
    esac
}

# Gets the words of `trap -- COMMAND EXIT`, or nothing.
_lockkeeper_note_bash() {
    _lockkeeper_note "${3:-}" EXIT
}

# Installs the EXIT trap. It releases the locks, then runs the script's own EXIT trap. Own traps on INT or TERM are not
# changed: they end in an exit, which releases.
_lockkeeper_trap() {
    [ -z "$_lockkeeper_trapped" ] || return 0
    _lockkeeper_trapped=yes
    _lockkeeper_exit=
    _lockkeeper_int=
    _lockkeeper_term=
    if [ -n "${ZSH_VERSION:-}" ]; then
        # In zsh, functions cannot see the script's own EXIT trap, and it wins. The hook runs in addition.
        eval 'setopt localoptions posixtraps; zshexit_functions+=(_lockkeeper_at_exit)'
    fi
    if [ -n "${BASH_VERSION:-}" ]; then
        # bash runs the EXIT trap for INT and TERM too.
        eval "_lockkeeper_note_bash $(eval 'trap -p EXIT')"
        # shellcheck disable=SC3028
        if [ "${BASH_SUBSHELL:-0}" -gt 0 ]; then
            # Here bash shows the trap of the parent. A subshell must not run it.
            case $_lockkeeper_exit in
            '' | *_lockkeeper_at_exit*) _lockkeeper_exit= ;;
            *) return 0 ;;
            esac
        fi
    else
        # Only the shell itself can list its traps, not a subshell.
        _lockkeeper_file=$(mktemp) || return 0
        trap >"$_lockkeeper_file"
        eval "$(sed 's/^trap -- /_lockkeeper_note /' "$_lockkeeper_file")"
        rm -f "$_lockkeeper_file"
        [ -n "$_lockkeeper_int" ] || trap '_lockkeeper_on_signal INT' INT
        [ -n "$_lockkeeper_term" ] || trap '_lockkeeper_on_signal TERM' TERM
    fi
    # Both branches keep $? for the script's own trap.
    trap 'if _lockkeeper_at_exit; then eval "$_lockkeeper_exit"; else eval "$_lockkeeper_exit"; fi' EXIT
}

case ${0##*/} in
mutex_lock.sh | mutex_lock) _lockkeeper_group "$@" ;;
esac
