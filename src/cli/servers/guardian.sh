# The guardian of one throwaway server: the server's parent, and the owner of its directory.
#
#   HANDFAST_GUARDIAN="$(cat guardian.sh)" sh -c 'eval "$HANDFAST_GUARDIAN"' guardian DIRECTORY LAST_SIGNAL
#
# Orders come in on stdin, one a line; each is answered by one line on stdout. When stdin ends, however the program
# at its other end did, the server is ended by LAST_SIGNAL and the directory removed.
#
#   start FILE          runs $DIRECTORY/FILE                        -> its process id
#   signal NAME PID...  sends a signal                              -> ok
#   wait                waits for what was started and reaps it     -> its exit status
unset HANDFAST_GUARDIAN
dir=$1
last_signal=$2
pid=
stopped=

umask 077
if ! message=$(mkdir "$dir" "$dir/tmp" 2>&1); then
    echo "$message"
    exit 1
fi
echo ready

while read -r order rest; do
    case $order in
    start)
        sh "$dir/$rest" </dev/null >>"$dir/log" 2>&1 &
        pid=$!
        echo "$pid"
        ;;
    signal)
        # Words are meant to split: a signal and process ids.
        kill -s $rest 2>/dev/null
        case $rest in
        STOP*) stopped=${rest#STOP} ;;
        *) stopped= ;;
        esac
        echo ok
        ;;
    wait)
        wait "$pid"
        echo "$?"
        pid=
        ;;
    esac
done

if [ -n "$pid" ]; then
    # A stopped process takes no signal but SIGKILL.
    kill -s CONT "$pid" $stopped 2>/dev/null
    kill -s "$last_signal" "$pid" 2>/dev/null
    (
        sleep 10
        kill -s KILL "$pid"
    ) 2>/dev/null &
    wait "$pid"
fi
# Stragglers of our process group: helpers of an initialisation, the watchdog above.
trap '' TERM
kill -s TERM 0

# A postmaster that was killed leaves a segment of System V shared memory, named on line 7 of its pid file.
segment=$(sed -n '7s/^ *[0-9]* *\([0-9]*\).*/\1/p' "$dir/data/postmaster.pid" 2>/dev/null)
case $segment in
'' | 0) ;;
*) ipcrm -m "$segment" 2>/dev/null ;;
esac

# Processes that are still ending may write once more.
tries=0
rm -rf "$dir" 2>/dev/null
while [ -e "$dir" ] && [ "$tries" -lt 100 ]; do
    sleep 0.1
    rm -rf "$dir" 2>/dev/null
    tries=$((tries + 1))
done
