#!/bin/sh
# Tells Spark the GPUs of this host or container, as spark.{worker,executor}.resource.gpu.discoveryScript:
#   {"name": "gpu", "addresses": ["0", "1"]}
# Addresses are the indexes of nvidia-smi, and UUIDs for the parts that MIG made. Where CUDA_VISIBLE_DEVICES is set they are positions
# in that list, which is how tfos reads them. Without a driver the list is empty, and the reason is on stderr.
set -u

tell() {
    list=""
    for address in "$@"; do
        list="${list:+$list, }\"$address\""
    done
    printf '{"name": "gpu", "addresses": [%s]}\n' "$list"
    exit 0
}

if [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
    position=0
    set --
    old_ifs=$IFS
    IFS=', '
    for entry in $CUDA_VISIBLE_DEVICES; do
        case $entry in
            [0-9]* | GPU-* | MIG-*) set -- "$@" "$position" ;;
            *) break ;;
        esac
        position=$((position + 1))
    done
    IFS=$old_ifs
    tell "$@"
fi

# A broken driver may never answer, and Spark would wait for ever.
limit=""
command -v timeout >/dev/null 2>&1 && limit="timeout -k 1 20"
if ! listing=$($limit nvidia-smi -L 2>&1); then
    printf 'nvidia-smi -L failed: %s\n' "$listing" >&2
    tell
fi

# "GPU 0: NAME (UUID: GPU-...)", and indented below it, in MIG mode, "MIG 1g.5gb  Device  0: (UUID: MIG-...)".
# shellcheck disable=SC2046 # neither indexes nor UUIDs have spaces
tell $(printf '%s\n' "$listing" | awk '
    function flush() { if (index_of_gpu != "" && !parts) print index_of_gpu }
    /^GPU [0-9]+: / { flush(); index_of_gpu = $2; sub(/:.*/, "", index_of_gpu); parts = 0; next }
    /^[ \t]+MIG .*\(UUID: MIG-/ { uuid = $0; sub(/.*\(UUID: /, "", uuid); sub(/\).*/, "", uuid); print uuid; parts = 1 }
    END { flush() }
')
