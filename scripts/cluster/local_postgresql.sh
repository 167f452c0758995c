#!/usr/bin/env bash
# A PostgreSQL server for trying out `physml search --storage`, on this machine alone and without passwords:
#   scripts/cluster/local_postgresql.sh install      Debian, as root
#   scripts/cluster/local_postgresql.sh start DIR    prints its URL
#   scripts/cluster/local_postgresql.sh stop DIR
# PORT (15432) is where it listens.
set -euo pipefail

port=${PORT:-15432}
usage() {
    sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
}

# The server refuses to run as root.
as_postgres() {
    if [ "$(id -u)" = 0 ]; then su -s /bin/bash postgres -c "$(printf '%q ' "$@")"; else "$@"; fi
}

programs() {
    find /usr/lib/postgresql -maxdepth 2 -name bin -type d 2>/dev/null | sort -V | tail -n 1
}

[ $# -ge 1 ] || usage
case $1 in
install)
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql
    ;;
start)
    [ $# -eq 2 ] || usage
    bin=$(programs)
    [ -n "$bin" ] || { echo "PostgreSQL is not installed: ${BASH_SOURCE[0]} install" >&2; exit 2; }
    mkdir -p "$2"
    folder=$(cd "$2" && pwd)
    [ "$(id -u)" != 0 ] || chown postgres "$folder"
    [ -d "$folder/data" ] || as_postgres "$bin/initdb" -A trust -U physml -D "$folder/data" >"$folder/initdb.log"
    as_postgres "$bin/pg_ctl" -w -t 600 -s -D "$folder/data" -l "$folder/server.log" \
        -o "-p $port -k $folder -c listen_addresses=127.0.0.1" start
    as_postgres "$bin/createdb" -h 127.0.0.1 -p "$port" -U physml physml 2>/dev/null || true
    echo "postgresql+psycopg://physml@127.0.0.1:$port/physml"
    ;;
stop)
    [ $# -eq 2 ] || usage
    as_postgres "$(programs)/pg_ctl" -s -D "$(cd "$2" && pwd)/data" -m fast -t 600 stop
    ;;
*) usage ;;
esac
