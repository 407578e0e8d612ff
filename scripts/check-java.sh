#!/bin/sh
# Say in one line what to install when the Java that Spark would start is missing or older than 17.
# Same choice as Spark's launcher: $JAVA_HOME/bin/java where JAVA_HOME is set, else java on the PATH.
remedy="Install a JDK or JRE 17 or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17), or set JAVA_HOME to one."

java=${JAVA_HOME:+$JAVA_HOME/bin/}java
if ! text=$("$java" -version 2>&1); then
    echo "Java 17 or newer is needed, and '$java' does not run. $remedy" >&2
    exit 1
fi
# '... version "17.0.15" ...', '... version "25-ea" ...', and before Java 9: '... version "1.8.0_392" ...'
major=$(printf '%s\n' "$text" | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1)
if [ "${major:-0}" -lt 17 ]; then
    echo "Java 17 or newer is needed, and '$java' is version ${major:-unknown}. $remedy" >&2
    exit 1
fi
