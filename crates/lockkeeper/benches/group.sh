# What the document of the group locks describes, as plain shell: group.sh acquire|release GROUP FD, group.sh check.
registry=$LOCK_DIR/registry.log
now=$(date +%s)
case $1 in
acquire)
    flock -x -w 300 "$3" && echo "$2:$PPID:$2:$now:ACTIVE" >>"$registry"
    ;;
release)
    sed -i "s/^\($2:$PPID:$2:[0-9]*\):ACTIVE\$/\1:RELEASED:$now/" "$registry" && flock -u "$3"
    ;;
check)
    while IFS=: read -r lock pid group since status _; do
        [ "$status" = ACTIVE ] && [ $((now - since)) -gt 600 ] || continue
        kill -0 "$pid" 2>/dev/null && echo "Stale lock detected: $group" || sed -i "/^$lock:$pid:/d" "$registry"
    done <"$registry"
    ;;
esac
