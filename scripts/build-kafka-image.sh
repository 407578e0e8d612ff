#!/bin/sh
# Build an image that ContainerKafka can use instead of apache/kafka, on a machine that can pull none: Debian with a
# Java runtime, Kafka's jars as LocalKafka uses them, and a start script that understands KAFKA_* variables.
#
#   build-kafka-image.sh [TAG]     default tag: local/kafka:VERSION; does nothing if that image exists
#
# Needs root, debootstrap (installed if there is apt-get), a container engine that answers, Java, and a Python that
# has this package: PYTHON names it (default: python3).
set -eu

python="${PYTHON:-python3}"
version=$("$python" -c 'from pyspark_kafka_group.testing.pinned_jars import KAFKA_VERSION; print(KAFKA_VERSION)')
tag="${1:-local/kafka:$version}"

say() { echo "kafka image: $*" >&2; }

docker info >/dev/null 2>&1 || { say "no container engine answers: see container-engine.sh"; exit 1; }
if docker image inspect "$tag" >/dev/null 2>&1; then say "$tag is there"; exit 0; fi
[ "$(id -u)" = 0 ] || { say "making a Debian file system needs root"; exit 1; }
if ! command -v debootstrap >/dev/null; then
    say "installing debootstrap ..."
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends debootstrap; } >&2
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root="$work/root"

say "making a Debian file system with Java (about half a minute) ..."
debootstrap --variant=minbase --include=openjdk-17-jre-headless bookworm "$root" >"$work/debootstrap.log" 2>&1 ||
    { tail -n 20 "$work/debootstrap.log" >&2; say "debootstrap failed"; exit 1; }

mkdir -p "$root/opt/kafka/libs" "$root/opt/kafka/config" "$root/etc/kafka/docker" "$root/mnt/shared/config"
"$python" -c 'from pyspark_kafka_group.testing.jars import kafka_jars; print(*kafka_jars(), sep="\n")' |
    while IFS= read -r jar; do cp "$jar" "$root/opt/kafka/libs/"; done

# The settings come from the variables alone.
: >"$root/etc/kafka/docker/server.properties"
cat >"$root/etc/kafka/docker/log4j2.yaml" <<'YAML'
Configuration:
  Appenders:
    Console:
      name: CONSOLE
      PatternLayout:
        pattern: "[%d] %p %m (%c)%n"
  Loggers:
    Root:
      level: INFO
      AppenderRef:
        - ref: CONSOLE
    Logger:
      - name: org.apache.kafka.common.config.AbstractConfig
        level: WARN
YAML
cp "$root/etc/kafka/docker/log4j2.yaml" "$root/etc/kafka/docker/tools-log4j2.yaml"

# Kafka's own tool turns the variables into files and formats the data folder under CLUSTER_ID.
cat >"$root/etc/kafka/docker/run" <<'SH'
#!/bin/sh
set -eu
# When the container is started again, formatting fails last, as the files are there by then.
output=$(java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp '/opt/kafka/libs/*' kafka.docker.KafkaDockerWrapper setup \
    --default-configs-dir /etc/kafka/docker --mounted-configs-dir /mnt/shared/config \
    --final-configs-dir /opt/kafka/config 2>&1) || case "$output" in
    *"already formatted"*) ;;
    *) echo "$output"; exit 1 ;;
esac
# shellcheck disable=SC2086 -- options are words
exec java ${KAFKA_HEAP_OPTS:--Xmx512m} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError \
    -Djava.awt.headless=true -Dlog4j2.configurationFile=/opt/kafka/config/log4j2.yaml \
    -cp '/opt/kafka/libs/*' kafka.Kafka /opt/kafka/config/server.properties
SH
chmod 755 "$root/etc/kafka/docker/run"
chroot "$root" useradd --uid 1000 --no-create-home kafka
chroot "$root" chown kafka /opt/kafka/config

say "importing $tag ..."
tar -C "$root" --exclude='./var/cache/apt/archives/*.deb' --exclude='./var/lib/apt/lists/*' \
    --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*' \
    --exclude='./proc/*' --exclude='./sys/*' -c . |
    docker import --change 'CMD ["/etc/kafka/docker/run"]' --change 'USER 1000' \
        --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' - "$tag" >/dev/null
say "built $tag"
