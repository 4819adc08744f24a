#!/bin/sh
# Counts to a number. It reports each step, continues from its last checkpoint, and stops at SIGTERM.
count=$1
step=0

# A call that is no job has no descriptors for events and input.
report() {
    if [ -n "$TOOLMESH_EVENTS_FD" ]; then
        printf '%s\n' "$1" >&"$TOOLMESH_EVENTS_FD"
    fi
}

trap 'report "{\"log\": {\"severity\": \"warning\", \"text\": \"stopped at step $step\"}}"; exit 1' TERM

if [ -n "$TOOLMESH_INPUT_FD" ]; then
    read -r resume <&"$TOOLMESH_INPUT_FD" # the first line: {"resume":null}, or {"resume":{"step":5}}
    step=$(printf '%s' "$resume" | tr -cd '0-9')
fi
while [ "${step:=0}" -lt "$count" ]; do
    sleep 0.05
    step=$((step + 1))
    report "{\"progress\": {\"current_step\": $step, \"total_steps\": $count}}"
    report "{\"checkpoint\": {\"state\": {\"step\": $step}}}"
    if [ -n "$TOOLMESH_INPUT_FD" ]; then
        read -r reply <&"$TOOLMESH_INPUT_FD" # {"reply":0,"saved":true}; or {"cancel":"..."}
        case $reply in *cancel*) report '{"log": {"text": "stopped on request"}}' && exit 1 ;; esac
    fi
done
printf '{"counted": %s}\n' "$count"
