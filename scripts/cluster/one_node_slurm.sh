#!/usr/bin/env bash
# A real Slurm cluster of one node on this machine, for tests and for a first try. Debian or Ubuntu, as root.
#
#   scripts/cluster/one_node_slurm.sh install        the packages
#   scripts/cluster/one_node_slurm.sh start DIR      controller and node; prints the SLURM_CONF to export
#   scripts/cluster/one_node_slurm.sh stop DIR
#
# No accounting, no cgroups: jobs share the machine, and --cpus-per-task is counted but not enforced.
set -euo pipefail

install() {
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
        slurm-wlm slurm-client slurmctld slurmd munge
}

start() {
    local dir=$1 name cpus memory
    name=$(hostname -s)
    cpus=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) # which else says these
    memory=$(awk '/MemTotal/ {print int($2 / 1024 * 0.9)}' /proc/meminfo)
    mkdir -p "$dir/state" "$dir/spool"
    cat >"$dir/slurm.conf" <<END
ClusterName=one
SlurmctldHost=$name
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
MinJobAge=600
SchedulerParameters=batch_sched_delay=1,sched_interval=2
SlurmctldPort=${PORT:-16817}
SlurmdPort=$((${PORT:-16817} + 1))
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
NodeName=$name NodeAddr=127.0.0.1 CPUs=$cpus RealMemory=$memory State=UNKNOWN
PartitionName=all Nodes=$name Default=YES MaxTime=INFINITE State=UP
END
    if ! pgrep -x munged >/dev/null; then
        mkdir -p /run/munge
        chown munge:munge /run/munge
        su -s /bin/sh munge -c '/usr/sbin/munged --force --num-threads=2'
    fi
    export SLURM_CONF=$dir/slurm.conf
    slurmctld
    slurmd -N "$name"
    for _ in $(seq 100); do
        [ "$(sinfo -h -o %T 2>/dev/null)" = idle ] && break
        sleep 0.2
    done
    [ "$(sinfo -h -o %T)" = idle ] || { echo "the node is not idle: see $dir/slurmctld.log" >&2; exit 1; }
    echo "export SLURM_CONF=$SLURM_CONF"
}

stop() {
    local pid
    for pid in "$1"/slurmd.pid "$1"/slurmctld.pid; do
        [ -e "$pid" ] && kill "$(cat "$pid")" 2>/dev/null || true
    done
}

case ${1:-} in
    install) install ;;
    start) start "$(realpath -m "${2:?a folder for its state}")" ;;
    stop) stop "$(realpath -m "${2:?the folder of its state}")" ;;
    *) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
