# Runs one job in its folder: job.json goes in; events.ndjson, log.txt, checkpoint/ and, at the very
# end, `exit` (the exit code) come out.  Slurm may start it again: it then goes on from the
# checkpoint.  Above this text stand `program` and `folder`; everything else about the job is in
# job.json, which no shell reads.
set -u
folder=$folder${SLURM_ARRAY_TASK_ID:+/$SLURM_ARRAY_TASK_ID}
cd -- "$folder" || exit 1
rm -f exit
touch started
# What a killed attempt wrote last may have no end of line.
if [ -s events.ndjson ] && [ -n "$(tail -c 1 events.ndjson)" ]; then echo >> events.ndjson; fi
echo "attempt $((${SLURM_RESTART_COUNT:-0} + 1)) of Slurm job ${SLURM_JOB_ID:-none} on $(uname -n)" >> log.txt

# USR1: the time limit is near.  TERM: cancelled, or preempted.  Either way the run writes a
# checkpoint and leaves.
run='' why='' trapped=0
leave() {
    trapped=1
    why=${why:-$1}
    if [ -n "$run" ]; then kill -TERM "$run" 2> /dev/null; fi
}
trap 'leave limit' USR1
trap 'leave stopped' TERM
"$program" run job.json --json --checkpoint checkpoint >> events.ndjson 2>> log.txt &
run=$!
if [ -n "$why" ]; then kill -TERM "$run" 2> /dev/null; fi
while :; do
    trapped=0
    wait "$run"
    code=$?
    if [ "$trapped" = 0 ]; then break; fi # else a signal ended the wait and not the run
done
if [ "$code" -gt 128 ]; then
    echo "the run was killed by signal $((code - 128))" >> log.txt
    code=4
fi

if [ "$code" = 5 ] && [ "$why" = limit ]; then
    # Once more, unless all of this attempt led to nothing: the next one would not either.
    if [ -n "$(find checkpoint -newer started -type f -print -quit 2> /dev/null)" ]; then
        if scontrol requeue "$SLURM_JOB_ID" >> log.txt 2>&1; then
            echo "time limit near: checkpoint written, queued again" >> log.txt
            exit 0
        fi
        echo "time limit near: checkpoint written, but Slurm does not queue the job again" >> log.txt
    else
        echo "time limit near, and no iteration was done in it: give more with --time" >> log.txt
    fi
    code=4
elif [ "$code" = 5 ] && [ "$why" = stopped ]; then
    exit 5 # without `exit`: Slurm knows whether this is the end
fi
echo "$code" > exit.partial && mv exit.partial exit
exit "$code"
