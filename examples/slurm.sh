#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 --time=4:00:00 --signal=TERM@300
# sbatch examples/slurm.sh RECIPE NAME
# One task a machine; `grpo` starts a process on each of its GPUs. Submitted again, the same line goes on where the run
# called NAME stopped. SIGTERM comes five minutes before the end and the deadline before that: both save a checkpoint.
set -eu
recipe=${1:?recipe} name=${2:?name of the run}
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
resume=()
[ -e "runs/$name/run.json" ] && resume=(--resume "runs/$name")
exec srun grpo train "$recipe" --set run.name="$name" --set run.deadline=3h50m \
  --set launch.nodes="$SLURM_NNODES" --set launch.rendezvous="$head:29500" "${resume[@]}"
