if [ -d @{folder} ]; then
  exec >>@{seen}"$SLURM_JOB_ID".txt 2>&1
else  # this node does not see the folder of the launch
  printed=$(mktemp "${TMPDIR:-/tmp}/@{unseen}$SLURM_JOB_ID.XXXXXXXX")
  exec >>"$printed" 2>&1
  set -- --guest "$printed"
fi
