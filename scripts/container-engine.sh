#!/bin/sh
# Provide a container engine for the container tests where none answers: Docker from Debian packages.
#
#   container-engine.sh start   exits 0 when an engine answers, whoever runs it; else says in one line why not
#   container-engine.sh stop    ends the engine that "start" began, and no other
#
# Containers are published on 127.0.0.1 only. The engine leaves its bridge and firewall rules behind, as Docker does:
# on a machine that you keep, install Docker in the usual way instead.
set -eu

state="${PYSPARK_KAFKA_GROUP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/pyspark-kafka-group}/engine"
pid_file="$state/dockerd.pid"
log="$state/dockerd.log"

say() { echo "container engine: $*" >&2; }
cannot() { say "not available, container tests will not run: $*"; exit 1; }
answers() { command -v docker >/dev/null && docker info >/dev/null 2>&1; }
is_ours() { [ -s "$pid_file" ] && [ "$(cat "/proc/$(cat "$pid_file")/comm" 2>/dev/null)" = dockerd ]; }

start() {
    if answers; then say "already running"; return; fi
    [ "$(id -u)" = 0 ] || cannot "none runs, and starting one needs root"
    mkdir -p "$state"
    if ! command -v dockerd >/dev/null || ! command -v iptables >/dev/null || ! command -v docker >/dev/null; then
        command -v apt-get >/dev/null || cannot "none is installed, and there is no apt-get to install one"
        say "installing Docker from Debian packages ..."
        { apt-get update && DEBIAN_FRONTEND=noninteractive \
            apt-get install -y --no-install-recommends docker.io iptables; } >"$state/install.log" 2>&1 ||
            cannot "installing Docker failed, see $state/install.log"
    fi
    # Installing the package may have started the service.
    if answers; then say "running"; return; fi
    setsid nohup dockerd --ip 127.0.0.1 --pidfile "$pid_file" >"$log" 2>&1 </dev/null &
    starter=$!
    tries=0
    until answers; do
        tries=$((tries + 1))
        if [ "$tries" -gt 60 ] || ! kill -0 "$starter" 2>/dev/null; then
            stop
            cannot "dockerd did not start, see $log"
        fi
        sleep 0.5
    done
    say "started, log in $log"
}

stop() {
    if ! is_ours; then return; fi
    pid=$(cat "$pid_file")
    kill "$pid"
    tries=0
    while [ -d "/proc/$pid" ]; do
        tries=$((tries + 1))
        if [ "$tries" -eq 60 ]; then kill -9 "$pid"; fi
        sleep 0.5
    done
    rm -f "$pid_file"
    say "stopped"
}

case "${1:-}" in
    start) start ;;
    stop) stop ;;
    *) echo "usage: $0 start|stop" >&2; exit 2 ;;
esac
