#!/bin/sh
# usage: publish.sh TOKEN FILE   (exit 75: a newer holder was here)
(
    flock 9
    last=$(cat site.token 2>/dev/null || echo 0)
    [ "$1" -ge "$last" ] || exit 75
    echo "$1" >site.token
    cp -- "$2" site.html
) 9>site.lock
